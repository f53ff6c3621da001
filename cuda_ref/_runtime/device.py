"""Device properties on which the choice of a tile or of a division of the work depends."""

from functools import lru_cache

import torch


@lru_cache(maxsize=64)
def multiprocessors(device: torch.device) -> int:
    """The number of a GPU's multiprocessors; 1 for a CPU, where kernels are emulated."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
