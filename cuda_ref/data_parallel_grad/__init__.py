"""The gradients of a layer with the batch split over the ranks, in CUDA: the product for dx hides the sums."""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.symmetric import all_reduce_during
from cuda_ref.all_reduce._add import add_parts

DETERMINISTIC = True


def data_parallel_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, "N"],
    dy: Float[Tensor, "M N"],
    *,
    group: dist.ProcessGroup,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, "N"]]:
    """(dx, dweight, dbias) of `linear_sigmoid_grad`, the last two summed over the ranks of `group`.

    dweight and dbias come first. Each half of the product for dx hides copies between the ranks; between the halves a
    kernel adds. The kernels are the plain ones of linear_sigmoid_grad and matmul.

    Shapes: x (M, K) and dy (M, N), this rank's rows; weight (N, K) and bias (N,), the same on all ranks; any strides.
    Dtypes, precision, tail: those of linear_sigmoid_grad; sums over ranks are in float32 and rounded once.
    Devices: GPUs that reach each other's memory; on a CPU processes share memory.
    Raises: ValueError for other shapes, dtypes and precisions; NotImplementedError for more than 16 ranks;
    build.CudaError if a launch fails.
    Source: gradient buckets of PyTorch's DistributedDataParallel; symmetric memory; linear_sigmoid_grad.cu.
    """
    M, N, K = check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)
    dz, dweight, dbias = x.new_empty(M, N), x.new_empty(N, K), x.new_empty(N)
    build.launch(
        "linear_sigmoid_grad/linear_sigmoid_grad", "linear_sigmoid_grad", x.device,
        x, weight, bias, dy, dz, None, dweight, dbias, M, N, K, *x.stride(), *weight.stride(), *bias.stride(),
        *dy.stride(), precision == "tf32", build.DTYPES[x.dtype],
    )  # fmt: skip
    dx = x.new_empty(M, K)

    def product(rows: slice) -> None:
        if dx[rows].numel() > 0:
            build.launch(
                "matmul/matmul", "matmul", x.device,
                dz[rows], weight, dx[rows], len(dx[rows]), K, N, *dz.stride(), *weight.stride(), precision == "tf32",
                build.DTYPES[x.dtype],
            )  # fmt: skip

    dweight, dbias = all_reduce_during((dweight, dbias), add_parts, product, M, group)
    return dx, dweight, dbias
