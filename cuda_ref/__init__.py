"""CUDA kernels, a folder for each operation. `matmul/matmul.cu` is the plain kernel, `matmul/__init__.py` its launcher.

`matmul/tiled.cu` and `matmul/tiled.py` are the variant `cuda/tiled`. Names that begin with an underscore are helpers.
The folder depends only on torch and jaxtyping, and works when copied elsewhere.
"""
