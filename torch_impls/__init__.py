"""PyTorch's own kernels and the vendors' libraries behind them: the baselines. One file per implementation.

Precision is set for each call and restored after it. A kernel that is requested by name either runs or raises: PyTorch
never silently substitutes another arithmetic or another kernel where that changes what a row means.
Modules that begin with an underscore are shared. The folder depends on torch and jaxtyping only.
"""
