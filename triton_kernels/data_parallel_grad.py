"""The gradients of a layer with the batch split over the ranks, in Triton: the product for dx hides the sums."""

import torch.distributed as dist
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output, fitted
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels._runtime.symmetric import all_reduce_during
from triton_kernels.all_reduce._add import add_parts
from triton_kernels.linear_sigmoid_grad import derivative
from triton_kernels.matmul import GROUP_M, STEP_BYTES, TILE, matmul, matmul_kernel
from triton_kernels.sum import sum as sum_of

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
    kernel adds. The kernels are those of linear_sigmoid_grad.

    Shapes: x (M, K) and dy (M, N), this rank's rows; weight (N, K) and bias (N,), the same on all ranks; any strides.
    Dtypes, precision, tail: those of linear_sigmoid_grad; sums over ranks are in float32 and rounded once.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: those of linear_sigmoid_grad; NotImplementedError for more than 16 ranks.
    Source: gradient buckets of PyTorch's DistributedDataParallel; symmetric memory.
    """
    M, N, K = check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)
    check_sizes("data_parallel_grad", M, N, K)
    dz = derivative(x, weight, bias, dy, precision)
    dx = empty_output((M, K), x.dtype, x.device)
    tile = fitted(TILE, M, K, N) or {"BLOCK_K": STEP_BYTES // x.element_size()}

    def product(rows: slice) -> None:
        part, into = dz[rows], dx[rows]
        m = len(into)
        if m > 0 and K > 0:
            with device_of(x):
                launch(
                    matmul_kernel, lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(K, meta["BLOCK_N"]),),
                    part, weight, into, None, None, m, K, N, *part.stride(), *weight.stride(),
                    PRECISION=precision, GROUP_M=GROUP_M, **tile,
                )  # fmt: skip

    terms = (matmul(dz.t(), x, precision=precision), sum_of(dz, axis=0))
    sums = all_reduce_during([each.float() if INTERPRET else each for each in terms], add_parts, product, M, group)
    dweight, dbias = (finished_output(each, x.dtype) for each in sums)
    return finished_output(dx, x.dtype), dweight, dbias
