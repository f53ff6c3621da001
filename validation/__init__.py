"""Programs that validate the suite: its timer, its repeatability, its bounds, and its CUDA kernels' memory accesses."""
