"""A linear layer with a sigmoid in CUDA on Hopper's tensor cores: the kernel of matmul/wgmma.cu with another end."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.arguments import check_linear, find_tma_layout, tma_layout
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.pitched import pitched
from cuda_ref.linear_sigmoid import skinny as linear_sigmoid_skinny
from cuda_ref.matmul._plan import best_plan, one_of_two_tiles
from cuda_ref.matmul._tiles import elements_of_parts

REQUIRES = "sm_90"
KERNELS = ("wgmma", "skinny")


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), in one pass.

    Shapes: x (M, K), weight (N, K), bias (N,), any sizes up to 2^30; the output is contiguous.
    Strides: any. x and weight are copied first unless they are contiguous along K, the other stride a multiple of 16
    bytes, and the first element at a multiple of 16 bytes; which takes their size in memory. So is a strided bias.
    Plan: in 16 bits matmul/_plan.py chooses the tile, and the number of parts in which k is divided; few rows are left
    to skinny.cu where that is faster.
    Dtypes: float16, bfloat16; sums and sigmoids in float32, and for large tiles the product is rounded before the bias
    is added. float32 with precision "tf32": factors are rounded to tf32.
    Tail: TMA pads tiles that overhang the inputs with zeros and leaves out what overhangs the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for two devices; NotImplementedError for precision
    "ieee" of float32, for K = 0, for larger sizes, and on other devices; build.CudaError if the launch fails.
    Source: see wgmma.cu.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_products("linear_sigmoid", x, precision, (M, N, K))
    out = x.new_empty(M, N)
    if M == 0 or N == 0:
        return out
    (x, x_stride), (weight, weight_stride) = rows_for_tma(x, weight)
    bias = bias.contiguous()
    plan = best_plan(x, weight.t(), KERNELS) if x.element_size() == 2 else one_of_two_tiles(M, N, x)
    if plan.kernel == "skinny":
        return linear_sigmoid_skinny.run(plan, x, weight, bias)
    dtype = build.DTYPES[x.dtype]
    sums = x.new_empty(elements_of_parts(plan, M, N), dtype=torch.float32) if plan.parts > 1 else None
    build.launch(
        "linear_sigmoid/wgmma", "linear_sigmoid_wgmma", x.device,
        x, weight, bias, out, M, N, K, x_stride, weight_stride, plan.tile, plan.parts, sums, dtype,
    )  # fmt: skip
    return out


def check_products(operation: str, x: Tensor, precision: str, sizes: tuple[int, int, int]) -> None:
    """What the kernels for Hopper leave out. Raises NotImplementedError."""
    if x.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError(f'{operation}: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    if sizes[2] == 0:
        raise NotImplementedError(f"{operation}: written for K of at least 1; got K=0")
    if max(sizes) > 2**30:
        raise NotImplementedError(f"{operation}: M, N and K must be at most 2^30; got {sizes}")


def rows_for_tma(*matrices: Tensor) -> list[tuple[Tensor, int]]:
    """Each matrix, or a copy if TMA cannot read it by rows, with the distance of its rows in elements."""
    found = []
    for x in matrices:
        layout = find_tma_layout(x, 1, k_major_only=True)
        if layout is None:
            (x,) = pitched((x, 1))
            layout = tma_layout("x", x, 1, k_major_only=True)
        found.append((x, layout[1]))
    return found
