"""The gradients of attention by scaled_dot_product_attention: cuDNN's kernels if they accept the case."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_impls._runtime.contract import check_attention_grad, check_window
from torch_impls.attention._sdpa import aligned, gradients, lower_right, unfused_in_float32

VENDOR = "PyTorch (cuDNN on a GPU)"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)

FUSED = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Kernels on a GPU. The first one that accepts the case is used."""

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]
Scale = Float[Tensor, ""]


def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    Dtypes: float32, float16 or bfloat16. H is a multiple of H_kv; `sm_scale` defaults to 1 / sqrt(D). 16-bit dtypes on
    a GPU use fused kernels: the products of the inputs have float32 sums; probabilities and their gradients are rounded
    to 16 bits before the other products. All other cases use the unfused kernels in float32, because PyTorch's fused
    kernel for CPUs adds in the dtype of the inputs.

    With `causal` query i sees the keys j <= i + S_k - S_q, by an explicit mask if PyTorch's `is_causal` differs;
    with `window` the mask is always explicit, and a query sees only that many keys up to its own. A query that sees
    none has gradient 0. On a GPU tensors with a row that does not begin at a multiple of 16 bytes are copied first,
    because the fused kernels do not check this.

    float8_e4m3fn: q, k, v and do are each multiplied by a scale, and the gradients of the scaled operands are bfloat16.
    PyTorch has no float8 kernel: the operands are widened to bfloat16, in which scaled q and k are rounded.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_attention_grad(q, k, v, do, (scale_q, scale_k, scale_v, scale_do), float64=True)
    if scale_q is not None and scale_k is not None and scale_v is not None and scale_do is not None:
        q, k = (q.float() * scale_q).bfloat16(), (k.float() * scale_k).bfloat16()
        v, do = v.bfloat16(), do.bfloat16()
        dq, dk, dv = attention_grad(q, k, v, do, causal=causal, sm_scale=sm_scale, window=window)
        return dq * (scale_v * scale_do), dk * (scale_v * scale_do), dv * scale_do
    near = check_window("attention_grad", window, causal, k.shape[2])

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            lower_right(q, k, causal=causal, window=near),
            is_causal=causal and q.shape[2] == k.shape[2] and not near,
            scale=sm_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    if not q.is_cuda or q.dtype == torch.float32:
        with unfused_in_float32(q):
            return gradients(attend, q, k, v, do, causal=causal)
    q, k, v, do = (x if aligned(x) else x.clone(memory_format=torch.contiguous_format) for x in (q, k, v, do))
    with sdpa_kernel(FUSED, set_priority=True):
        return gradients(attend, q, k, v, do, causal=causal)
