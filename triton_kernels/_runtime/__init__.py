"""Launches, kept calls, autotuning, the interpreter and argument checks, for all kernels of this folder."""
