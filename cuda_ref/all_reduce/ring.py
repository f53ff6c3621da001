"""The sum over all ranks in a ring, in CUDA: each rank reads only from the rank before it."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref.all_reduce._call import reduced

DETERMINISTIC = True


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank reads 2 (ranks - 1) / ranks N elements of one other, and waits 2 (ranks - 1) times, which suits many ranks
    and long vectors.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; each addition is in float32 and rounded.
    Tail: the last pack of 16 bytes may be shorter. Indices are int64.
    Devices: GPUs that reach each other's memory; on a CPU the same kernel is emulated in processes that share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for more than 16 ranks; build.CudaError if the
    launch fails.
    Source: see ring.cu.
    """
    return reduced("all_reduce/ring", x, group, buffers=2)
