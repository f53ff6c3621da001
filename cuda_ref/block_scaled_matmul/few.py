"""Product of float8 codes in CUDA for few rows, as in decoding: bound by reading b.

Adds tiles with few rows, two blocks per multiprocessor, and clusters that divide k, to wgmma.py.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref.block_scaled_matmul._launch import arguments, checked
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import SKINNY_COLUMNS, Plan, described
from cuda_ref.matmul.wgmma import copies

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
MOST_ROWS = 64
COLUMNS, GROUP = 64, 128
"""Columns of a tile, and terms of a step."""
RESIDENT, LEAST_STEPS = 2, 4
"""Blocks of a multiprocessor, and the fewest steps of a part of k."""


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k]).

    Shapes: M at most 64; otherwise shapes, strides, dtypes, tail and devices are those of wgmma.py.
    Raises: as wgmma.py, and NotImplementedError for more rows.
    Source: see few.cu.
    """
    M, N, K = checked(a, scale_a, b, scale_b)
    if M > MOST_ROWS:
        raise NotImplementedError(f"block_scaled_matmul: M must be at most {MOST_ROWS}; got M={M}")
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N, dtype=torch.bfloat16)
    return run(choose(a, b), a, scale_a, b, scale_b)


def config(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> str:
    """The kernel, the blocks of a cluster that divide k, and the operands that it copies for TMA."""
    return described(choose(a, b), **copies(a, b.mT)) if a.numel() * b.numel() > 0 else ""


def choose(a: Tensor, b: Tensor) -> Plan:
    """The most blocks of a cluster, a power of two up to 8, that are resident together and have enough steps each."""
    steps = -(-a.shape[1] // GROUP)
    parts = max(p for p in (1, 2, 4, 8) if p == 1 or (fits(b, p) and p * LEAST_STEPS <= steps))
    return Plan("skinny8", SKINNY_COLUMNS.index(COLUMNS), parts)


def fits(b: Tensor, parts: int = 1) -> bool:
    """True if all blocks are resident at once, with k in this number of parts."""
    tiles = -(-len(b) // COLUMNS)
    return tiles * parts <= RESIDENT * (multiprocessors(b.device) if b.is_cuda else 1)


def run(plan: Plan, a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensor:
    """The product of operands that are not empty, by a plan."""
    out = a.new_empty(len(a), len(b), dtype=torch.bfloat16)
    build.launch(
        "block_scaled_matmul/few", "block_scaled_few", a.device,
        *arguments(a, scale_a, b, scale_b, out), plan.parts,
    )  # fmt: skip
    return out
