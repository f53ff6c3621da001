"""Triton kernels, one file per operation; each file stands alone.

They run natively on NVIDIA GPUs, and on CPU tensors in Triton's interpreter if TRITON_INTERPRET=1 is set before import.
"""
