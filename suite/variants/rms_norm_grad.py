"""Variants of rms_norm_grad: those of `_norm_gradients.py`."""

from suite.variants._norm_gradients import variants

__all__ = ["variants"]
