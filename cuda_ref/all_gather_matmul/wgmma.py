"""All ranks' rows times this rank's weight by tensor cores: the plain implementation with products by matmul/wgmma."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.symmetric import as_they_arrive
from cuda_ref.matmul import wgmma

REQUIRES = "sm_90"


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order.

    Shapes, dtypes, precisions and errors: those of matmul/wgmma.py; NotImplementedError also if the results of a rank
    are no multiple of 16 bytes, and for more than 16 ranks.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory); matmul/wgmma.cu.
    """
    empty = wgmma.checked(x, w, None, None, precision)
    M, N = x.shape[0], w.shape[1]
    out = x.new_empty(group.size() * M, N)
    if empty is not None:
        return out.zero_()
    if M * N * x.element_size() % 16:
        raise NotImplementedError(f"all_gather_matmul: M x N elements must fill packs of 16 bytes; got M={M}, N={N}")

    def product(rank: int, rows: Tensor) -> None:
        wgmma.run(wgmma.choose(rows, w, precision), rows, w, precision, out=out[rank * M : (rank + 1) * M])

    as_they_arrive([x], product, group)
    return out
