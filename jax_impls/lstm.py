"""A layer of LSTM cells by lax.scan: XLA launches a product and a fused kernel per step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_lstm, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)

State = tuple[jax.Array, jax.Array]


@jax.jit
def lstm(
    x: Float[Array, "T B I"],
    w_ih: Float[Array, "4*H I"],
    w_hh: Float[Array, "4*H H"],
    bias: Float[Array, 4 * H],
    h0: Float[Array, "B H"],
    c0: Float[Array, "B H"],
) -> tuple[Float[Array, "T B H"], Float[Array, "B H"], Float[Array, "B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    Dtypes: float32, float16 or bfloat16. Sums and c are float32; x w_ih^T, one product for all steps, and h are rounded
    to the inputs' dtype. Raises ValueError for other shapes and dtypes.
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0, float64=True)
    wide = working(x)
    exactly = {"precision": lax.Precision.HIGHEST, "preferred_element_type": wide}
    inputs = jnp.einsum("tbi,gi->tbg", x, w_ih, **exactly).astype(x.dtype)

    def step(state: State, input_terms: jax.Array) -> tuple[State, jax.Array]:
        h, c = state
        z = jnp.einsum("bh,gh->bg", h, w_hh, **exactly) + input_terms.astype(wide) + bias.astype(wide)
        i, f, g, o = jnp.split(z, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(x.dtype)
        return (h, c), h

    (h, c), y = lax.scan(step, (h0, c0.astype(wide)), inputs)
    return y, h, c.astype(x.dtype)
