"""The gradients of attention by PyTorch's unfused kernels: products and softmax, with the scores in memory."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_attention_grad, check_window
from torch_impls.attention._sdpa import gradients, lower_right, unfused_in_float32

VENDOR = "PyTorch math"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)

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

    Dtypes: float32, float16 or bfloat16. Everything is float32, products included, and the gradients are rounded once.
    Gradients of k and v are rounded for each query head of a group before they are added. Masks, windows and scale
    are those of attention/math.py. A query that sees no key has gradient 0. float8_e4m3fn: q, k, v and do are widened
    to float32 and each multiplied by a scale, and the gradients of the scaled operands are bfloat16.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_attention_grad(q, k, v, do, (scale_q, scale_k, scale_v, scale_do), float64=True)
    if scale_q is not None and scale_k is not None and scale_v is not None and scale_do is not None:
        q, k, v, do = q.float() * scale_q, k.float() * scale_k, v.float() * scale_v, do.float() * scale_do
        dq, dk, dv = attention_grad(q, k, v, do, causal=causal, sm_scale=sm_scale, window=window)
        return dq.bfloat16(), dk.bfloat16(), dv.bfloat16()
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

    with unfused_in_float32(q):
        return gradients(attend, q, k, v, do, causal=causal)
