"""The sum over all ranks in chunks, in CUDA: a chunk is copied while the one before is read from all ranks."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref.all_reduce._call import reduced

DETERMINISTIC = True
RANKS = (2, 4, 8)


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank reads (ranks - 1) N elements of the others, as in the plain implementation. This suits two ranks and long
    vectors.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: the last pack of 16 bytes may be shorter. Indices are int64.
    Devices: GPUs that reach each other's memory; on a CPU the same kernel is emulated in processes that share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other numbers of ranks than RANKS;
    build.CudaError if the launch fails.
    Source: see overlapped.cu.
    """
    if group.size() not in RANKS:
        raise NotImplementedError(f"all_reduce: this kernel is compiled for {RANKS} ranks; got {group.size()}")
    return reduced("all_reduce/overlapped", x, group, buffers=2)
