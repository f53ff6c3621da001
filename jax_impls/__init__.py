"""The operations in JAX, compiled by XLA for the GPU or the CPU. Each function is jitted.

Arguments are checked while a function is traced: a call with shapes and dtypes seen before costs no check.
A file is an operation's only implementation; a folder has the plain one and its variants.
The kernels depend on jax and jaxtyping only.
"""
