"""The sum over all ranks in one crossing of the link, in CUDA: each 4 bytes are sent beside the number of the call."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref.all_reduce._call import reduced

DETERMINISTIC = True
MOST_BYTES = 8 << 20
"""The largest vector: a longer one takes too much memory, and is faster without packets."""


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank stores 2 (ranks - 1) N elements to the memory of the others, and waits only for the numbers beside the
    data: for short vectors.

    Shapes: x (N,), any stride, at most MOST_BYTES. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: the last pack of 16 bytes may be shorter. Indices are int64.
    Devices: GPUs that reach each other's memory; on a CPU the same kernel is emulated in processes that share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for more than 16 ranks and longer vectors;
    build.CudaError if the launch fails.
    Source: see packets.cu.
    """
    if x.numel() * x.element_size() > MOST_BYTES:
        raise NotImplementedError(f"all_reduce: packets are for vectors of at most {MOST_BYTES} bytes")
    return reduced("all_reduce/packets", x, group, buffers=4 * group.size(), use="packets")
