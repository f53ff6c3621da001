"""Matrix product: c = a b, by the kernel that XLA picks (on a GPU cuBLAS or one generated through Triton)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_matmul

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")


@partial(jax.jit, static_argnames="precision")
def matmul(
    a: Float[Array, "M K"],
    b: Float[Array, "K N"],
    scale_a: Float[Array, ""] | None = None,
    scale_b: Float[Array, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16; K = 0 gives zeros.

    float8_e4m3fn: scale_a * scale_b * a b in bfloat16.

    The arithmetic is always explicit, because JAX's default for float32 on a GPU is tf32.
    float32, "ieee": `Precision.HIGHEST`, float32 products and sums. float32, "tf32": the algorithm TF32_TF32_F32.
    16 bits: exact products, summed in float32 (`preferred_element_type`) and rounded once.
    float8: sums in float32. With `Precision.HIGHEST` ("promoted") cuBLASLt adds the tensor cores' sums in float32 at
    intervals of K; with the default ("fast") the tensor cores compute the whole sums.

    Raises ValueError for other shapes, dtypes, scales and precisions, NotImplementedError for "tf32" without a GPU.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True, float64=True)
    if scale_a is not None:
        algorithm = lax.Precision.HIGHEST if precision == "promoted" else lax.Precision.DEFAULT
        sums = lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32)
        return (sums * (scale_a * scale_b)).astype(jnp.bfloat16)
    if a.dtype == jnp.float64:
        return lax.dot(a, b, precision=lax.Precision.HIGHEST)
    if a.dtype != jnp.float32:
        return lax.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
    algorithm = lax.Precision.HIGHEST if precision == "ieee" else lax.DotAlgorithmPreset.TF32_TF32_F32
    return lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32)
