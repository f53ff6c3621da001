"""The operations in JAX, compiled by XLA for the GPU or the CPU. One file per implementation; each function is jitted.

Arguments are checked while a function is traced: a call with shapes and dtypes seen before costs no check.
Modules that begin with an underscore are shared. The folder depends on jax and jaxtyping only.
"""
