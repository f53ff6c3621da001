"""All ranks' rows times this rank's weight in CUDA: one product a rank, in the order in which the rows arrive."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.symmetric import as_they_arrive

DETERMINISTIC = True


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order.

    The product of this rank's own rows hides the copy of the next rank's, and so on. The kernel is the plain one of
    matmul.

    Shapes: x (M, K), the same on all ranks, w (K, N), any strides, K = 0 included; the output is contiguous.
    Dtypes, precisions, tail: those of matmul.
    Devices: GPUs that reach each other's memory; on a CPU processes share memory.
    Raises: ValueError for other shapes, dtypes and precisions; NotImplementedError for more than 16 ranks;
    build.CudaError if the launch fails.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory); matmul/matmul.cu.
    """
    M, N, K = check_matmul(x, w, precision=precision)
    out = x.new_empty(group.size() * M, N)
    if out.numel() == 0 or K == 0:
        return out.zero_()

    def product(rank: int, rows: Tensor) -> None:
        build.launch(
            "matmul/matmul", "matmul", x.device,
            rows, w, out[rank * M : (rank + 1) * M], M, N, K, *rows.stride(), *w.stride(), precision == "tf32",
            build.DTYPES[x.dtype],
        )  # fmt: skip

    as_they_arrive([x], product, group)
    return out
