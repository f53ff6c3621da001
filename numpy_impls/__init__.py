"""The operations in NumPy on the CPU, a baseline without compiler or device: one file per operation.

bfloat16 is ml_dtypes' dtype for NumPy. 16-bit inputs are computed in float32 and rounded once at the end.
float64 operands are computed in float64.
Names that begin with an underscore are helpers. The folder depends only on numpy, ml_dtypes and jaxtyping.
"""
