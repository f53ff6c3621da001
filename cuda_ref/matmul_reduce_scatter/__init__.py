"""The product with K split over the ranks, in CUDA: each product hides the copy of the one before."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_split_matmul
from cuda_ref._runtime.symmetric import all_to_all
from cuda_ref.all_reduce._add import add_parts

DETERMINISTIC = True


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    The products of the other ranks' rows come first, this rank's last, which needs no copy.
    The kernel is the plain one of matmul; another adds what the ranks sent.

    Shapes: x (ranks M, K), w (K, N), the same shapes on all ranks, any strides, also K = 0; the output is contiguous.
    Dtypes, precisions, tail: those of matmul. Products are rounded once, and added in float32.
    Devices: GPUs that reach each other's memory; on a CPU processes share memory.
    Raises: ValueError for other shapes, dtypes and precisions; NotImplementedError for more than 16 ranks;
    build.CudaError if a launch fails.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory); matmul/matmul.cu.
    """
    M, N, K = check_split_matmul(x, w, group.size(), precision=precision)
    if M * N * K == 0:
        return x.new_zeros(M, N)

    def product(rank: int, into: Tensor) -> None:
        rows = x[rank * M : (rank + 1) * M]
        build.launch(
            "matmul/matmul", "matmul", x.device,
            rows, w, into, M, N, K, *rows.stride(), *w.stride(), precision == "tf32", build.DTYPES[x.dtype],
        )  # fmt: skip

    out = x.new_empty(M, N)
    add_parts(all_to_all(product, (M, N), x.dtype, x.device, group), out)
    return out
