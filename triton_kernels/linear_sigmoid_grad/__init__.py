"""The gradients of a linear layer with a sigmoid in Triton: the layer, its derivative, two products and a sum."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.linear_sigmoid import linear_sigmoid
from triton_kernels.matmul import matmul
from triton_kernels.sum import sum as sum_of

DETERMINISTIC = True
BLOCK = 256 if INTERPRET else 64  # rows and columns of a tile


@triton.jit
def sigmoid_grad_kernel(y_ptr, dy_ptr, dz_ptr, M, N, stride_dym, stride_dyn, BLOCK: tl.constexpr):
    """One program computes one tile, [BLOCK, BLOCK], of dz = dy y (1 - y). y and dz are contiguous."""
    tiles_n = tl.cdiv(N, BLOCK)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    y = tl.load(y_ptr + offs_m * N + offs_n, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + offs_m * stride_dym + offs_n * stride_dyn, mask=mask).to(tl.float32)
    tl.store(dz_ptr + offs_m * N + offs_n, dy * y * (1.0 - y), mask=mask)


def derivative(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, precision: str) -> Float[Tensor, "M N"]:
    """dz = dy y (1 - y), where y is the `linear_sigmoid` of x, weight and bias."""
    y = linear_sigmoid(x, weight, bias, precision=precision)
    M, N = y.shape
    dz = empty_output((M, N), x.dtype, x.device)
    if dz.numel() > 0:
        with device_of(x):
            grid = (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK),)
            launch(sigmoid_grad_kernel, grid, y, dy, dz, M, N, *dy.stride(), BLOCK)
    return finished_output(dz, x.dtype)


@kept
def linear_sigmoid_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, "N"],
    dy: Float[Tensor, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, "N"]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    dz = dy y (1 - y); dx = dz weight, dweight = dz^T x, and dbias is the sum of the rows of dz.

    Shapes: x (M, K), weight (N, K), bias (N,), dy (M, N), any strides. The results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; sums in float32; y, dz and the results are rounded.
    Precision: as in `linear_sigmoid`, for all three products.
    Tail: masked. Errors: those of `linear_sigmoid` and `matmul`.
    """
    M, N, K = check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    check_sizes("linear_sigmoid_grad", M, N, K)
    dz = derivative(x, weight, bias, dy, precision)
    return matmul(dz, weight, precision=precision), matmul(dz.t(), x, precision=precision), sum_of(dz, axis=0)
