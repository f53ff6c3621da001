"""Modules of `validation/against_nsight.py`."""
