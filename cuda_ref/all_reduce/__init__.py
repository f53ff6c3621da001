"""The sum over all ranks in one step, in CUDA: every rank reads the vectors of all others (one-shot)."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref.all_reduce._call import reduced

DETERMINISTIC = True


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank reads (ranks - 1) N elements of the others, which suits few ranks or short vectors. two_shot.py reads
    less.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: the last pack of 16 bytes may be shorter. Indices are int64.
    Devices: GPUs that reach each other's memory; on a CPU the same kernel is emulated in processes that share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for more than 16 ranks; build.CudaError if the
    launch fails.
    Source: see all_reduce.cu.
    """
    return reduced("all_reduce/all_reduce", x, group, buffers=2)
