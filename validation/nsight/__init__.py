"""Parts of `validation/against_nsight.py`."""
