"""The gradients of attention by the FlashAttention-2 kernels in PyTorch, without fallback to other kernels."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend

from torch_impls._runtime.contract import check_attention_grad
from torch_impls.attention._sdpa import check_alignment, gradients, only_kernel

VENDOR = "FlashAttention-2 (PyTorch)"

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    float16 and bfloat16, D a multiple of 8 up to 256. Scores, softmax and sums are float32; dq is added by atomic
    operations, so its last bits differ from call to call. H a multiple of H_kv; `sm_scale` defaults to 1 / sqrt(D).

    With `causal` query i sees the keys j <= i + S_k - S_q, by the kernel's own mask. The kernel is called directly,
    because its wrapper refuses S_q != S_k. A query that sees no key has gradient 0.

    Raises ValueError for other shapes and dtypes and for different devices, NotImplementedError with PyTorch's reasons
    for cases that the kernel refuses.
    """
    check_attention_grad(q, k, v, do)
    if not q.is_cuda:
        raise NotImplementedError(f"attention_grad: FlashAttention-2 needs an NVIDIA GPU; q is on {q.device}")
    if q.shape[3] % 8:
        raise NotImplementedError(f"attention_grad: FlashAttention-2 takes D as a multiple of 8; got D={q.shape[3]}")
    check_alignment("FlashAttention", q, k, v)
    do = do.contiguous()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hides = causal and q.shape[2] > 1
        if not can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, False, q.shape[1] != k.shape[1])):
            return only_kernel(
                SDPBackend.FLASH_ATTENTION, "FlashAttention-2", q, k, v, None, is_causal=hides, scale=sm_scale
            )
        o: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, hides, False, scale=sm_scale)[0]
        return o

    return gradients(attend, q, k, v, do, causal=causal)
