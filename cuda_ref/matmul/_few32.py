"""Products in tf32 with few rows or columns: the larger operand is read once, from memory to registers."""

from torch import Tensor

from cuda_ref import build
from cuda_ref.hopper.layouts import find_tma_layout
from cuda_ref.matmul._tiles import Plan


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty, by a "few32" plan: `parts` blocks of a cluster divide k."""
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    few, stream, out_strides = (a, b.t(), (N, 1)) if M <= N else (b.t(), a, (1, N))
    layout = find_tma_layout(stream, 1)
    assert layout is not None, "the plan is for rows at multiples of 16 bytes"
    across_k, stride = layout
    build.launch(
        "matmul/_few32", "matmul_few32", a.device,
        stream, few, out, stream.shape[0], few.shape[0], K, not across_k, stride, *few.stride(), *out_strides,
        plan.parts,
    )  # fmt: skip
    return out
