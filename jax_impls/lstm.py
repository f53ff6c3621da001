"""Layers of LSTM cells by lax.scan: XLA launches a product and a fused kernel per step."""

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
    w_hh: Float[Array, "*L 4*H H"],
    bias: Float[Array, "*L 4*H"],
    h0: Float[Array, "*L B H"],
    c0: Float[Array, "*L B H"],
    w_ih_upper: Float[Array, "upper 4*H H"] | None = None,
) -> tuple[Float[Array, "T B H"], Float[Array, "*L B H"], Float[Array, "*L B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    With w_ih_upper (L - 1, 4H, H) there are L layers, and each takes the y of the one before: w_hh (L, 4H, H),
    bias (L, 4H), h0, c0, h and c (L, B, H); y is that of the last.

    Dtypes: float32, float16 or bfloat16. Sums and c are float32; x w_ih^T, one product for all steps, and h are rounded
    to the inputs' dtype. Raises ValueError for other shapes and dtypes.
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper, float64=True)
    if w_ih_upper is None:
        return layer(x, w_ih, w_hh, bias, h0, c0)
    y, states = x, []
    for operands in zip((w_ih, *w_ih_upper), w_hh, bias, h0, c0, strict=True):
        y, *state = layer(y, *operands)
        states.append(state)
    h, c = map(jnp.stack, zip(*states, strict=True))
    return y, h, c


def layer(
    x: jax.Array, w_ih: jax.Array, w_hh: jax.Array, bias: jax.Array, h0: jax.Array, c0: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """y, h and c of one layer, in the dtype of x."""
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
