"""Stand-ins for CUPTI, NVML, the CUDA driver and a GPU, shared by the tests of several packages."""
