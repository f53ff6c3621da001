"""Matrix product: c = a b, by the library or the generated kernel that XLA picks (cuBLAS or Triton on a GPU)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn",)


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

    Of float8_e4m3fn it is that times scale_a scale_b, in bfloat16.

    The arithmetic is asked for, never left to a default (on a GPU JAX's own default for float32 is tf32):
    float32, "ieee": `Precision.HIGHEST`, float32 products and sums. float32, "tf32": the algorithm TF32_TF32_F32.
    16 bits: exact products, summed in float32 (`preferred_element_type`) and rounded once.
    float8: sums in float32, times both scales. `Precision.HIGHEST` has cuBLASLt promote the sums of tensor cores to
    float32 at intervals of K ("promoted"), the default leaves them there ("fast").

    Raises ValueError for other shapes, dtypes, scales and precisions, NotImplementedError for "tf32" without a GPU.
    """
    _check(a, b, scale_a, scale_b, precision)
    if scale_a is not None:
        algorithm = lax.Precision.HIGHEST if precision == "promoted" else lax.Precision.DEFAULT
        sums = lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32)
        return (sums * (scale_a * scale_b)).astype(jnp.bfloat16)
    if a.dtype != jnp.float32:
        return lax.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
    algorithm = lax.Precision.HIGHEST if precision == "ieee" else lax.DotAlgorithmPreset.TF32_TF32_F32
    return lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32)


def _check(a: jax.Array, b: jax.Array, scale_a: jax.Array | None, scale_b: jax.Array | None, precision: str) -> None:
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {a.shape}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={a.shape}, so b must be ({a.shape[1]}, N); got {b.shape}")
    if a.dtype.name not in ("float32", "float16", "bfloat16", "float8_e4m3fn"):
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    float8 = a.dtype == jnp.float8_e4m3fn
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.shape, scale.dtype.name)
        if found != (((), "float32") if float8 else None):
            raise ValueError(f"matmul: {name} must be a float32 of shape () for float8, None for others; got {found}")
    allowed = ("promoted", "fast") if float8 else ("ieee", "tf32")
    if precision not in allowed:
        raise ValueError(f"matmul: precision must be {allowed[0]!r} or {allowed[1]!r} for {a.dtype}; got {precision!r}")
    if precision == "tf32":
        if a.dtype != jnp.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        if jax.default_backend() != "gpu":
            raise NotImplementedError(
                "matmul: precision 'tf32' needs NVIDIA's tensor cores; XLA on a CPU has only 'ieee'"
            )
