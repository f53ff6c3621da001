"""Sampling budgets of a comparison."""

BUDGETS_S = {"cuda": 0.04, "cpu": 0.1}
"""Time for the samples of an implementation by device type, beyond the minimum of samples."""
INTERVAL = 0.005
"""Relative half width of a median's 95% interval at which an implementation takes no more samples."""
