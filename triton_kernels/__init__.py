"""Triton kernels: one file per implementation; modules that begin with an underscore are shared by them.

They run natively on NVIDIA GPUs, and on CPU tensors in Triton's interpreter if TRITON_INTERPRET=1 is set before import.
The folder depends on torch, triton and jaxtyping only: copied elsewhere, it works as it is.
"""
