"""Products in tf32 with few rows or columns: the larger operand is read once, from memory to registers."""

from torch import Tensor

from cuda_ref import build
from cuda_ref.hopper.layouts import find_row_layout, find_tma_layout
from cuda_ref.matmul._tiles import Plan


def quad_layout(stream: Tensor) -> tuple[bool, int] | None:
    """The layout of rows that are multiples of 16 bytes, whether they are along K or across it; None for others."""
    layout = find_tma_layout(stream, 1)
    return layout if layout is not None and stream.shape[0 if layout[0] else 1] % 4 == 0 else None


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty, by a "few32" plan: `parts` blocks of a cluster divide k."""
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    few, stream, out_strides = (a, b.t(), (N, 1)) if M <= N else (b.t(), a, (1, N))
    quads, words = quad_layout(stream), find_row_layout(stream, 1)
    layout = quads or words
    assert layout is not None, "the plan is for a matrix with a contiguous dimension"
    across_k, stride = layout
    build.launch(
        "matmul/_few32", "matmul_few32", a.device,
        stream, few, out, stream.shape[0], few.shape[0], K, not across_k, quads is not None, stride,
        *few.stride(), *out_strides, plan.parts,
    )  # fmt: skip
    return out
