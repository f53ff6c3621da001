"""The operations in JAX, compiled by XLA for the GPU or the CPU. Each function is jitted.

Arguments are checked while a function is traced, so a call with known shapes and dtypes costs no check.
An operation with one implementation is a file; a folder holds the plain implementation and its variants.
The kernels depend only on jax and jaxtyping.
"""
