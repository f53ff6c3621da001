"""The sum over all ranks without flags, in CUDA: every word that is sent differs from the 0 that it replaces."""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_all_reduce
from cuda_ref._runtime.symmetric import workspace
from cuda_ref.all_reduce._call import BLOCKS, aligned

DETERMINISTIC = True
LINE = 8
"""Packs of 16 bytes in a line of memory: each slot begins at a whole one."""
SECOND_CROSSING_BYTES = 600_000
"""Bytes that NVLink moves at 300 GB/s in 2 us, the assumed time of a second crossing."""


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank stores (ranks - 1) N elements to the memory of the others, or in two steps 2 (ranks - 1) / ranks N. It
    waits only for the data. Two steps are taken if they save more than SECOND_CROSSING_BYTES.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: the last pack of 16 bytes may be shorter. Indices are int64.
    Devices: GPUs that reach each other's memory; on a CPU the same kernel is emulated in processes that share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for more than 16 ranks; build.CudaError if the
    launch fails.
    Source: see packets.cu.
    """
    check_all_reduce("all_reduce", x)
    (N,) = x.shape
    out = torch.empty(N, dtype=x.dtype, device=x.device)
    if N == 0:
        return out
    x, ranks, steps = aligned(x), group.size(), _steps(x, group)
    packs = -(-N * x.element_size() // 16)
    slot = LINE * -(-packs // (LINE * (ranks if steps == 2 else 1)))
    memory = workspace(group, x.device, 2 * steps * ranks * 16 * slot, "packets")  # 0 between calls
    build.launch(
        "all_reduce/packets", "all_reduce", x.device,
        x, out, memory.addresses, memory.rank, ranks, BLOCKS[x.device.type], N, slot, memory.data_bytes // 2, steps,
        build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def config(x: Tensor, *, group: dist.ProcessGroup) -> str:
    """`one_step` or `two_steps`."""
    check_all_reduce("all_reduce", x)
    return "" if x.numel() == 0 else "one_step" if _steps(x, group) == 1 else "two_steps"


def _steps(x: Tensor, group: dist.ProcessGroup) -> int:
    """1 or 2."""
    ranks = group.size()
    saved = (ranks - 1) * (ranks - 2) / ranks * x.numel() * x.element_size()
    return 2 if saved > SECOND_CROSSING_BYTES else 1
