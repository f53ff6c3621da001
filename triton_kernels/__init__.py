"""Triton kernels: a folder for each operation, with the plain kernel in its `__init__.py` and a file for each variant.

Names that begin with an underscore are helpers. The kernels run natively on NVIDIA GPUs. With TRITON_INTERPRET=1, set
before the import, Triton's interpreter runs them on CPU tensors. The folder depends only on torch, triton and
jaxtyping, and works when copied elsewhere.
"""
