"""The gradients of a linear layer with a sigmoid in CUDA on Hopper's tensor cores: three products and a sum.

Adds products by matmul/wgmma.py to the plain kernel. Sums over the rows of dz begin in the tiles of the first product.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept
from cuda_ref.linear_sigmoid.wgmma import check_products, copies, rows_for_tma
from cuda_ref.matmul import wgmma as product
from cuda_ref.matmul._model import costs_of, predicted_us
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import Plan, Problem, described

REQUIRES = "sm_90"
ROWS, SUMS = 64, 4
"""For every ROWS rows of dz the kernel stores SUMS sums."""
TILES_OF_TWO = (1, 2, 3)
"""The tiles of matmul/wgmma.cu with two consumer warpgroups."""


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

    dz = dy y (1 - y), in the pass that computes x weight^T; dx = dz weight and dweight = dz^T x, by matmul/wgmma.py;
    dbias is the sum over the rows of dz before it is rounded.

    Shapes: x (M, K), weight (N, K), bias (N,), dy (M, N), N a multiple of 8, sizes up to 2^30.
    Strides: any. Matrices that TMA cannot read are copied first, which takes their size in memory.
    Dtypes: float16, bfloat16, the same for all; sums in float32; x weight^T, dz and the results are rounded.
    Precision: "ieee".
    Memory: 2 M N bytes for dz and M N / 4 for sums over its rows.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32, for other N, for sizes of 0, for larger sizes, and on other devices;
    build.CudaError if a launch fails.
    Source: see wgmma.cu.
    """
    return gradients(product.matmul, x, weight, bias, dy, precision)


def config(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str = "ieee") -> str:
    """The steps that `linear_sigmoid_grad` runs: dz, dbias, dx, dweight."""
    return steps(product.config, x, weight, dy)


def gradients(
    matmul: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dweight, dbias), with dx and dweight by a given product."""
    dz, dbias = derivative(x, weight, bias, dy, precision)
    return matmul(dz, weight), matmul(dz.t(), x), dbias


def derivative(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """dz = dy y (1 - y), and the sum over its rows, dbias."""
    M, N, K = check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    check_products("linear_sigmoid_grad", x, precision, (M, N, K))
    if x.element_size() != 2 or N % 8 != 0 or M * N == 0:
        raise NotImplementedError(
            "linear_sigmoid_grad: written for 16 bits, M and N of at least 1, and N a multiple of 8; "
            f"got {x.dtype}, M={M} and N={N}"
        )
    dz, sums, dbias = x.new_empty(M, N), x.new_empty(-(-M // ROWS) * SUMS, N, dtype=torch.float32), x.new_empty(N)
    if bias.stride(0) != 1 or bias.data_ptr() % 16 != 0:
        bias = bias.clone(memory_format=torch.contiguous_format)
    (by_rows, x_stride), (weights, weight_stride), (dy, dy_stride) = rows_for_tma(x, weight, dy)
    dtype = build.DTYPES[x.dtype]
    build.launch(
        "linear_sigmoid_grad/wgmma", "sigmoid_gradient", x.device,
        by_rows, weights, bias, dy, dz, sums, M, N, K, x_stride, weight_stride, dy_stride,
        _plan(M, N, K, x).tile, dtype,
    )  # fmt: skip
    build.launch("linear_sigmoid_grad/wgmma", "add_rows", x.device, sums, dbias, sums.shape[0], N, dtype)
    return dz, dbias


def steps(product_config: Callable[[Tensor, Tensor], str], x: Tensor, weight: Tensor, dy: Tensor) -> str:
    """Describes the steps of `gradients`."""
    (M, K), N = x.shape, weight.shape[0]
    if M * N * K == 0:
        return ""
    dz = torch.empty_like(dy, memory_format=torch.contiguous_format)
    first = described(_plan(M, N, K, x), **copies(x, weight), dy=copies(dy, dy)["x"])
    return "; ".join((first, "add_rows", product_config(dz, weight), product_config(dz.t(), x)))


def _plan(M: int, N: int, K: int, x: Tensor) -> Plan:
    """The tile of the product that ends with dz. Its K is not divided into parts."""
    problem = Problem(M, N, K, False, False, multiprocessors(x.device) if x.is_cuda else 1)
    costs = costs_of(x.device if x.is_cuda else None)
    return min((Plan("wgmma", tile, 1) for tile in TILES_OF_TWO), key=lambda plan: predicted_us(plan, problem, costs))
