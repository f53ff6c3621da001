"""Parts of `validation/counters.py`: kernels with one pattern each, and the counters of Nsight Compute."""
