"""Arguments that several products of this folder do not take."""

import torch
from torch import Tensor


def check_sizes(sizes: tuple[int, int, int], log2_limit: int, operation: str = "matmul") -> None:
    """Raises NotImplementedError unless M, N and K are at most 2^log2_limit."""
    if max(sizes) > 2**log2_limit:
        raise NotImplementedError(f"{operation}: M, N and K must be at most 2^{log2_limit}; got {sizes}")


def check_16_bit(a: Tensor) -> None:
    """Raises NotImplementedError for float32."""
    if a.dtype == torch.float32:
        raise NotImplementedError("matmul: written for float16 and bfloat16; got torch.float32")
