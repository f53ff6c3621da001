"""Processes that run kernels: start, limits, messages and end, in the parent and in the process itself."""
