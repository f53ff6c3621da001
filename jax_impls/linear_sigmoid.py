"""A linear layer with a sigmoid, by the kernels that XLA picks or generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_linear, working
from jax_impls.sigmoid import stable_sigmoid

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames="precision")
def linear_sigmoid(
    x: Float[Array, "M K"], weight: Float[Array, "N K"], bias: Float[Array, N], *, precision: str = "ieee"
) -> Float[Array, "M N"]:
    """y[i, j] = sigma(sum over k of x[i, k] weight[j, k] + bias[j]), for float32, float16 or bfloat16.

    The arithmetic is that of `matmul`. In 16 bits the sums are float32. They are rounded before the sigmoid, which is
    computed in float32: XLA then lets cuBLAS add the bias, and reads and writes half of the bytes.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" without a GPU.
    """
    check_linear("linear_sigmoid", x, weight, bias, precision=precision, float64=True)
    return stable_sigmoid(logits(x, weight, bias, precision).astype(working(x))).astype(x.dtype)


def logits(x: Array, weight: Array, bias: Array, precision: str) -> Array:
    """x weight^T + bias, in the dtype of x."""
    return product(x, weight, (1, 1), precision) + bias


def product(a: Array, b: Array, contracted: tuple[int, int], precision: str) -> Array:
    """Sum of the products of a and b over one dimension of each, in their dtype."""
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    if a.dtype == jnp.float64:
        return lax.dot_general(a, b, dimensions, precision=lax.Precision.HIGHEST)
    if a.dtype != jnp.float32:
        return lax.dot_general(a, b, dimensions)
    algorithm = lax.Precision.HIGHEST if precision == "ieee" else lax.DotAlgorithmPreset.TF32_TF32_F32
    return lax.dot_general(a, b, dimensions, precision=algorithm, preferred_element_type=jnp.float32)
