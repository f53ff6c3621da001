"""The operations in JAX, compiled by XLA for the GPU or the CPU. One file per implementation; each function is jitted.

Arguments are checked while a function is traced, so a call with known shapes and dtypes is not checked again.
Modules that begin with an underscore are shared. The folder depends on jax and jaxtyping only.
"""
