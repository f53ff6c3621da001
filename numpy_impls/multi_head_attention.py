"""A layer of multi-head attention: a product, attention of each head, and a product."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_multi_head_attention, working
from numpy_impls.attention import attention

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def multi_head_attention(
    x: Float[np.ndarray, "B S E"],
    w_qkv: Float[np.ndarray, "3*E E"],
    w_out: Float[np.ndarray, "E E"],
    *,
    heads: int,
    causal: bool = False,
) -> Float[np.ndarray, "B S E"]:
    """y = concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) w_out^T with q, k, v = x w_qkv^T, and D = E // heads.

    Shapes: x (B, S, E), w_qkv (3 E, E), w_out (E, E), laid out as in torch.nn.Linear. The first E columns of x w_qkv^T
    are queries, the next keys, then values, head by head.
    Causal: position i sees positions up to i. float32, float16 or bfloat16: 16-bit inputs are widened, everything is
    float32, and the output is rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads, float64=True)
    (B, S, E), D = x.shape, x.shape[2] // heads
    wide, w_in, w_last = (each.astype(working(x), copy=False) for each in (x, w_qkv, w_out))
    q, k, v = (wide @ w_in.T).reshape(B, S, 3, heads, D).transpose(2, 0, 3, 1, 4)
    o = attention(q, k, v, causal=causal).transpose(0, 2, 1, 3).reshape(B, S, E)
    return (o @ w_last.T).astype(x.dtype, copy=False)
