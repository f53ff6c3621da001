"""Processes that run kernels, as their parent sees them and from inside: start, limits, messages, end."""
