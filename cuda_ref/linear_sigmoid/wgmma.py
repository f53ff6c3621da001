"""A linear layer with a sigmoid in CUDA on Hopper's tensor cores: matmul/wgmma.cu with another epilogue.

Adds to two_passes.py an epilogue that applies bias and sigmoid before the tile is stored.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import find_tma_layout, tma_layout
from cuda_ref.hopper.pitched import LINE, pitch, pitched
from cuda_ref.matmul._plan import best_of, one_of_two_tiles, problem_of
from cuda_ref.matmul._tiles import Plan, described, elements_of_parts

REQUIRES = "sm_90"


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), in one pass.

    Shapes: x (M, K), weight (N, K), bias (N,), any sizes up to 2^30; the output is contiguous.
    Strides: any. x and weight are copied first unless they are contiguous along K, the other stride is a multiple of 16
    bytes, and the first element is at a multiple of 16 bytes. A strided bias is copied too. Copies take memory.
    Plan: a model of the time chooses the tile, and in 16 bits the number of parts in which k is divided; see `config`.
    Dtypes: float16, bfloat16; sums and sigmoids in float32, and for large tiles the product is rounded before the bias
    is added. float32 with precision "tf32": factors are rounded to tf32.
    Tail: TMA pads tiles that overhang the inputs with zeros and does not write elements that overhang the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for precision "ieee" of float32, for K = 0, for larger sizes, and on other devices;
    build.CudaError if the launch fails.
    Source: see wgmma.cu.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_products("linear_sigmoid", x, precision, (M, N, K))
    if M == 0 or N == 0:
        return x.new_empty(M, N)
    plan = choose(x, weight)
    (x, x_stride), (weight, weight_stride) = rows_for_tma(x, weight)
    return run(plan, x, x_stride, weight, weight_stride, bias.contiguous())


def config(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> str:
    """The tile and parts that `linear_sigmoid` runs, and the operands that it copies for TMA."""
    return described(choose(x, weight), **copies(x, weight)) if x.numel() * weight.numel() > 0 else ""


def choose(x: Tensor, weight: Tensor, kernels: tuple[str, ...] = ("wgmma",)) -> Plan:
    """The plan of these kernels with the least predicted time. Copies are not counted: all plans need the same ones."""
    if x.element_size() != 2:
        return one_of_two_tiles(x.shape[0], weight.shape[0], x)
    if not x.is_cuda:
        return Plan(kernels[0], 0, 1)
    problem, copied = problem_of(x, weight.t()), copies(x, weight)
    straddles = pitch(x.shape[1], x.element_size()) * x.element_size() % LINE != 0
    if copied["x"]:
        problem = problem._replace(a_copied=False, a_across_k=False, a_split=straddles)
    if copied["weight"]:
        problem = problem._replace(b_copied=False, b_along_k=problem.N > 1, b_split=straddles)
    return best_of(problem, kernels, x.device)


def run(plan: Plan, x: Tensor, x_stride: int, weight: Tensor, weight_stride: int, bias: Tensor) -> Tensor:
    """The result for matrices that are not empty and that TMA can read by rows, by a "wgmma" plan."""
    (M, K), N = x.shape, weight.shape[0]
    out = x.new_empty(M, N)
    sums = x.new_empty(elements_of_parts(plan, M, N), dtype=torch.float32) if plan.parts > 1 else None
    build.launch(
        "linear_sigmoid/wgmma", "linear_sigmoid_wgmma", x.device,
        x, weight, bias, out, M, N, K, x_stride, weight_stride, plan.tile, plan.parts, sums, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def check_products(operation: str, x: Tensor, precision: str, sizes: tuple[int, int, int]) -> None:
    """Raises NotImplementedError for precisions and sizes that the kernels for Hopper do not cover."""
    if x.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError(f'{operation}: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    if sizes[2] == 0:
        raise NotImplementedError(f"{operation}: written for K of at least 1; got K=0")
    if max(sizes) > 2**30:
        raise NotImplementedError(f"{operation}: M, N and K must be at most 2^30; got {sizes}")


def copies(x: Tensor, weight: Tensor) -> dict[str, bool]:
    """The matrices, by name, and whether they are copied for TMA."""
    matrices = {"x": x, "weight": weight}
    return {name: find_tma_layout(each, 1, k_major_only=True) is None for name, each in matrices.items()}


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
