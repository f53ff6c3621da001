"""A layer of multi-head attention: XLA's products around cuDNN's fused attention."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_multi_head_attention
from jax_impls.attention.cudnn import check_limits
from jax_impls.matmul import matmul

VENDOR = "cuDNN"
REQUIRES = "cuda"


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
    Causal: position i sees positions up to i. float16 or bfloat16 with sums in float32; the first product and
    attention's result are rounded. JAX's interface to cuDNN takes (B, S, H, D), the layout of the first product.

    Raises ValueError for other shapes and dtypes, NotImplementedError for float32, for other D, and without a GPU.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    (B, S, E), D = x.shape, x.shape[2] // heads
    q, k, v = jnp.moveaxis(matmul(x.reshape(B * S, E), w_qkv.T).reshape(B, S, 3, heads, D), 2, 0)
    check_limits(q)
    if q.size == 0:
        return jnp.zeros(x.shape, x.dtype)
    o = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")
    return matmul(o.reshape(B * S, E), w_out.T).reshape(B, S, E)
