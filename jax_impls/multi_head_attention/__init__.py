"""A layer of multi-head attention compiled by XLA: a product, attention with its scores in memory, and a product."""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_multi_head_attention
from jax_impls.attention import attention
from jax_impls.matmul import matmul

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames=("heads", "causal"))
def multi_head_attention(
    x: Float[Array, "B S E"],
    w_qkv: Float[Array, "3*E E"],
    w_out: Float[Array, "E E"],
    *,
    heads: int,
    causal: bool = False,
) -> Float[Array, "B S E"]:
    """y = concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) w_out^T with q, k, v = x w_qkv^T, and D = E // heads.

    Shapes: x (B, S, E), w_qkv (3 E, E), w_out (E, E), laid out as in torch.nn.Linear. The first E columns of x w_qkv^T
    are queries, the next keys, then values, head by head.
    Causal: position i sees positions up to i. float32 with float32 products, float16 or bfloat16 with sums in float32;
    the first product and attention's result are rounded to 16 bits.

    Raises ValueError for other shapes and dtypes.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads, float64=True)
    (B, S, E), D = x.shape, x.shape[2] // heads
    q, k, v = matmul(x.reshape(B * S, E), w_qkv.T).reshape(B, S, 3, heads, D).transpose(2, 0, 3, 1, 4)
    o = attention(q, k, v, causal=causal).swapaxes(1, 2).reshape(B * S, E)
    return matmul(o, w_out.T).reshape(B, S, E)
