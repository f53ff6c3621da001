"""Headers that kernels for all GPUs share, and the launcher of kernels on rows."""
