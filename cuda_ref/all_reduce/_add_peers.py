"""The sum of what lies in the memory of all ranks: the launch of _add_peers.cu."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.symmetric import Workspace
from cuda_ref.all_reduce._call import BLOCKS


def add_peers(memory: Workspace, start: int, out: Float[Tensor, "..."]) -> None:
    """out = the sum over the ranks of what begins at byte `start` of their data, in float32, rounded once.

    All ranks call this after a kernel that has written their part. `start` is a multiple of 16 on every rank, but need
    not be the same; `out`, contiguous and not empty, has the same size on all.
    """
    blocks = BLOCKS[out.device.type]
    packs = -(-out.numel() * out.element_size() // 16)
    build.launch(
        "all_reduce/_add_peers", "add_peers", out.device,
        out, memory.addresses, memory.rank, memory.ranks, blocks, out.numel(), -(-packs // blocks), start,
        build.DTYPES[out.dtype],
    )  # fmt: skip
