"""The gradients of a linear layer with a sigmoid, by the kernels that XLA picks or generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_linear, working
from jax_impls.linear_sigmoid import logits, product
from jax_impls.sigmoid import stable_sigmoid

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames="precision")
def linear_sigmoid_grad(
    x: Float[Array, "M K"],
    weight: Float[Array, "N K"],
    bias: Float[Array, N],
    dy: Float[Array, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[Array, "M K"], Float[Array, "N K"], Float[Array, N]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    Dtypes: float32, float16 or bfloat16. dz = dy y (1 - y) is computed in float32. In 16 bits it is then rounded, since
    it is an operand of products; `jax.vjp` of `linear_sigmoid` would multiply it in float32.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" without a GPU.
    """
    check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision, float64=True)
    y = stable_sigmoid(logits(x, weight, bias, precision).astype(working(x)))
    wide = dy.astype(working(x)) * y * (1.0 - y)
    dz = wide.astype(x.dtype)
    dbias = jnp.sum(wide, axis=0).astype(x.dtype)
    return product(dz, weight, (1, 0), precision), product(dz, x, (0, 0), precision), dbias
