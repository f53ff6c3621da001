"""The operations in JAX, compiled by XLA for the GPU or the CPU. One file an operation; each function is jitted.

Shapes and dtypes are checked while a function is traced, so that a call with arguments seen before costs no check.
"""
