"""PyTorch's own kernels and the vendor libraries behind them: the baselines.

Precision is set for each call and restored after it. A kernel that is requested by name either runs or raises: PyTorch
never silently substitutes another arithmetic or another kernel if that changes the meaning of a row.
An operation with one implementation is a file; a folder holds the plain implementation and its variants.
Operations with `float64` in `DTYPES_BEYOND` compute float64 operands in float64.
The kernels depend only on torch and jaxtyping.
"""
