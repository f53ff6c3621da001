"""PyTorch's own kernels and the vendors' libraries behind them: the baselines.

Precision is set for each call and restored after it. A kernel that is requested by name either runs or raises: PyTorch
never silently substitutes another arithmetic or another kernel where that changes what a row means.
A file is an operation's only implementation; a folder has the plain one and its variants.
The kernels depend on torch and jaxtyping only.
"""
