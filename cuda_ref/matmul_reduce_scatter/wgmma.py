"""The product with K split over the ranks, by tensor cores: the plain implementation with products by matmul/wgmma."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_split_matmul
from cuda_ref._runtime.symmetric import all_to_all
from cuda_ref.all_reduce._add import add_parts
from cuda_ref.matmul import wgmma

REQUIRES = "sm_90"


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    Shapes, dtypes, precisions and errors: those of matmul/wgmma.py; NotImplementedError also for more than 16 ranks.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory); matmul/wgmma.cu.
    """
    M, N, _ = check_split_matmul(x, w, group.size(), precision=precision)
    if wgmma.checked(x, w, None, None, precision) is not None:
        return x.new_zeros(M, N)

    def product(rank: int, into: Tensor) -> None:
        rows = x[rank * M : (rank + 1) * M]
        wgmma.run(wgmma.choose(rows, w, precision), rows, w, precision, out=into)

    out = x.new_empty(M, N)
    add_parts(all_to_all(product, (M, N), x.dtype, x.device, group), out)
    return out
