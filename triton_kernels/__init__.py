"""Triton kernels: a folder for each operation, with the plain kernel in its `__init__.py` and a file for each variant.

Names that begin with an underscore are helpers. The kernels run natively on NVIDIA GPUs, and on CPU tensors in Triton's
interpreter if TRITON_INTERPRET=1 is set before the import. The folder depends on torch, triton and jaxtyping only:
copied elsewhere, it works as it is.
"""
