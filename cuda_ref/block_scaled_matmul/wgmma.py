"""Product of float8 codes in CUDA on Hopper's tensor cores: sums of 128 products, times their scales, in float32.

Adds TMA, wgmma and persistent blocks in clusters to the plain kernel, like matmul/wgmma.py.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref.block_scaled_matmul._launch import arguments, checked
from cuda_ref.matmul import _model_tf32_float8
from cuda_ref.matmul._model_tf32_float8 import Costs, Problem
from cuda_ref.matmul._rates import rates_of, scaled
from cuda_ref.matmul._tiles import Plan, described, elements_of_parts
from cuda_ref.matmul.wgmma import copies

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
COMPILED = (0, 1, 2)
"""Numbers of the tiles of "wgmma8" that the kernel has."""
COSTS = _model_tf32_float8.H200["wgmma8"]._replace(
    sm_products_per_us=5.783e6, sm_l2_bytes_per_us=1.007e5, launch_us=3.019, block_us=0.2475, step_us=0.0
)
"""Constants of the model of matmul in float8 for this kernel, at 1,980 MHz, the highest clock of an H100 SXM and H200.

sm_products_per_us, sm_l2_bytes_per_us, launch_us and block_us are fitted to device times of tiles 1 and 2 at eight
shapes on an H100 SXM (test_choice.py). step_us is 0: while one consumer adds its sums, the tensor cores work for the
other. The others are those of matmul.
"""


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k]).

    Shapes: a (M, K), b (N, K), scale_a (M, K / 128), scale_b (N / 128, K / 128), rounded up; sizes up to 2^30, K = 0
    included. The output is contiguous.
    Strides: any. TMA copies tiles of an operand that is contiguous along K, with rows at multiples of 16 bytes. Other
    operands are copied first, which takes their size in memory.
    Plan: the tile and the parts of k with the least time by the model of matmul in float8 with COSTS. `config` names
    them.
    Dtypes: float8_e4m3fn, scales float32, output bfloat16. The tensor cores keep 14 bits of the sum of a group; scaled
    sums are added in float32 and rounded once.
    Tail: TMA pads tiles that overhang the inputs with zeros and does not write elements that overhang the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and devices; NotImplementedError for larger sizes; build.CudaError if
    the launch fails.
    Source: see wgmma.cu.
    """
    M, N, K = checked(a, scale_a, b, scale_b)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N, dtype=torch.bfloat16)
    return run(choose(a, b), a, scale_a, b, scale_b)


def config(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> str:
    """The kernel, tile and parts that `block_scaled_matmul` runs, and the operands that it copies for TMA."""
    return described(choose(a, b), **copies(a, b.mT)) if a.numel() * b.numel() > 0 else ""


def choose(a: Tensor, b: Tensor) -> Plan:
    """The plan with the least predicted time; on a CPU the first tile."""
    if not a.is_cuda:
        return Plan("wgmma8", 0, 1)
    return best_of(_model_tf32_float8.problem_of(a, b.mT, "promoted"), _costs_of(a.device))


def best_of(x: Problem, costs: Costs = COSTS) -> Plan:
    """The plan with the least predicted time, by default at the highest clock of an H100 SXM."""
    return min(plans_of(x), key=lambda each: _model_tf32_float8.predicted_us(each, x, costs))


def plans_of(x: Problem) -> list[Plan]:
    """The plans that may be the fastest."""
    return [p for p in _model_tf32_float8.candidates(x) if p.kernel == "wgmma8" and p.tile in COMPILED]


@lru_cache
def _costs_of(device: torch.device) -> Costs:
    return scaled(COSTS, rates_of(device))


def run(plan: Plan, a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensor:
    """The product of operands that are not empty, by a plan."""
    M, N = len(a), len(b)
    out = a.new_empty(M, N, dtype=torch.bfloat16)
    sums = a.new_empty(elements_of_parts(plan, M, N), dtype=torch.float32) if plan.parts > 1 else None
    build.launch(
        "block_scaled_matmul/wgmma", "block_scaled_wgmma", a.device,
        *arguments(a, scale_a, b, scale_b, out), plan.tile, plan.parts, sums,
    )  # fmt: skip
    return out
