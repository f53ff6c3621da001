"""The operations in JAX, compiled by XLA for the GPU or the CPU. Each function is jitted.

Arguments are checked while a function is traced, so a call with known shapes and dtypes costs no check.
An operation with one implementation is a file; a folder holds the plain implementation and its variants.
Operations with `float64` in `DTYPES_BEYOND` compute float64 operands in float64, in JAX's 64-bit mode.
The kernels depend only on jax and jaxtyping.
"""
