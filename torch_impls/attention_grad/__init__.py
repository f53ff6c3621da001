"""The gradients of attention by scaled_dot_product_attention: cuDNN's kernels where they take the case."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_impls._runtime.contract import check_attention_grad
from torch_impls.attention._sdpa import aligned, gradients, lower_right, unfused_in_float32

VENDOR = "PyTorch (cuDNN on a GPU)"

FUSED = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Kernels on a GPU, the first that takes the case."""

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    float32, float16 or bfloat16; H a multiple of H_kv; `sm_scale` defaults to 1 / sqrt(D). On a GPU 16-bit types use
    fused kernels: the inputs' products have float32 sums, and probabilities and their gradients are rounded to 16 bits
    before the other products. float32, and any type on a CPU, where PyTorch's fused kernel adds in the inputs' type,
    uses the unfused ones in float32.

    With `causal` query i sees the keys j <= i + S_k - S_q, by an explicit mask where PyTorch's `is_causal` differs; a
    query that sees none has no gradient. On a GPU tensors with a row that does not begin at a multiple of 16 bytes are
    copied first, because the fused kernels do not check that.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_attention_grad(q, k, v, do)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            lower_right(q, k, causal=causal),
            is_causal=causal and q.shape[2] == k.shape[2],
            scale=sm_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    if not q.is_cuda or q.dtype == torch.float32:
        with unfused_in_float32(q):
            return gradients(attend, q, k, v, do, causal=causal)
    q, k, v, do = (x if aligned(x) else x.clone(memory_format=torch.contiguous_format) for x in (q, k, v, do))
    with sdpa_kernel(FUSED, set_priority=True):
        return gradients(attend, q, k, v, do, causal=causal)
