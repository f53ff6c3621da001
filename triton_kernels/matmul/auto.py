"""Matrix multiplication in Triton: chooses among `pipelined`, `parts`, `gluon` and a kernel for few rows.

16 bits: two models predict the time of each (`_plan.py`, `_plan_gluon.py`), and the fastest one runs. Operands at odd
addresses may be copied first. Other dtypes: `gluon` for large outputs on Hopper, otherwise `pipelined`.
`persistent` is left out: on Hopper `gluon` is faster (docs/lab/matmul.md).
"""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.padding import VECTOR, both_zero_padded, zero_padded
from triton_kernels._common.tma import find_tma
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.configs import device
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept
from triton_kernels.matmul import _plan, _plan_gluon, gluon, parts, pipelined
from triton_kernels.matmul._few import Few, few_parts, multiply_few
from triton_kernels.matmul.gluon import gluon_matmul_kernel  # noqa: F401 (a module names its autotuned kernels)
from triton_kernels.matmul.parts import parts_matmul_kernel  # noqa: F401
from triton_kernels.matmul.pipelined import pipelined_matmul_kernel  # noqa: F401

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
SHARE = 0.95
"""Pointers are used instead of TMA if their predicted time is below this fraction of TMA's."""
NARROW = 32
"""Most columns of a tall C for which TMA is never used: TMA reads short rows of A no faster, and latency dominates."""
FEW_ROWS = 16
"""Most rows or columns, in dtypes other than 16 bits, for which the 64-row tiles of `gluon` would be mostly empty."""


class Choice(NamedTuple):
    """The kernel that computes a product, and its plan."""

    way: str
    """gluon, pipelined, parts or few."""
    parts: int = 1
    padded: bool = False
    """True if operands at odd addresses are copied first."""
    few: Few | None = None


def choose(a: Tensor, b: Tensor, precision: str) -> Choice:
    """Chooses the kernel of a product that is not empty, from shapes, strides, alignment, dtype and device alone."""
    (M, K), N = a.shape, b.shape[1]
    x = device(a)
    hopper = a.is_cuda and torch.cuda.get_device_capability(a.device)[0] == 9 and max(M, N) <= 2**27
    if a.element_size() == 2:
        plan, us = _plan.best_of(_by_pointers(a, b))
        if hopper and not N <= NARROW < M:
            copied = (find_tma(each, 2) is None for each in (a, b))
            by_tma = _plan.Problem(M, N, K, *copied, gluon.output_is_odd(M, N), x)
            if us >= SHARE * _plan_gluon.best_of(by_tma)[1]:
                return Choice("gluon")
        if isinstance(plan, Few):
            return Choice("few", few=plan)
        return Choice("parts" if plan.parts > 1 else "pipelined", plan.parts, plan.padded)
    full = triton.cdiv(M, 128) * triton.cdiv(N, 128) >= x.multiprocessors
    if precision == "tf32":
        by_gluon = full and min(M, N) > FEW_ROWS
    else:  # loads of single bytes take longer than gluon's copies
        by_gluon = a.element_size() == 1 and (min(M, N) > FEW_ROWS or pipelined.alignment(a, b) == 1)
    return Choice("gluon" if hopper and by_gluon else "pipelined")


def _by_pointers(a: Tensor, b: Tensor) -> _plan.Problem:
    """The product as `pipelined` computes it: two column-major operands are multiplied as their transposes."""
    c_odd = b.shape[1] % VECTOR != 0
    if a.stride(0) == b.stride(0) == 1:
        a, b = b.t(), a.t()
    (M, K), N = a.shape, b.shape[1]
    strides = b.stride() if M <= N else a.stride()[::-1]  # along K, across C
    along = strides[1] != 1 if 1 in strides else None
    return _plan.Problem(M, N, K, *(pipelined.alignment(x) == 1 for x in (a, b)), c_odd, device(a), along)


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """C = A @ B; for float8 C = scale_a * scale_b * A @ B.

    Shapes, strides, dtypes, precision and errors: those of the plain kernel. The output is contiguous.
    Memory: padded copies of operands at odd addresses, and 4 M N bytes for each part of K, if the plan has them.
    `config` names the kernels that run.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    (M, K), N = a.shape, b.shape[1]
    check_sizes("matmul", M, N, K)
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=dtype, device=a.device)
    out = empty_output((M, N), dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            _launch(choose(a, b, precision), a, b, out, scale_a, scale_b, precision)
    return finished_output(out, dtype)


def config(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *, precision: str = "ieee"
) -> str:
    """The kernels that `matmul` runs: `pad_both; parts count=4; add_parts`. Empty if the result is empty or K is 0."""
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return ""
    choice = choose(a, b, precision)
    if choice.way == "gluon":
        return gluon.config(a, b, precision=precision)
    if choice.few is not None:
        count = few_parts(K, choice.few)
        return f"few parts={count}; add_parts" if count > 1 else "few"
    steps = ["transpose"] if pipelined.needs_columns(a, b, precision) else []
    if choice.padded:
        steps.append("pad_both" if pipelined.alignment(a) == pipelined.alignment(b) == 1 else "pad")
    if choice.way == "pipelined":
        return "; ".join([*steps, "pipelined"])
    return "; ".join([*steps, *parts.described(triton.cdiv(K, parts.part_terms(K, choice.parts)))])


def _launch(
    choice: Choice, a: Tensor, b: Tensor, c: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str
) -> None:
    if choice.way == "gluon":
        gluon.launch_product(a, b, c, scale_a, scale_b, precision)
        return
    a, b, c = pipelined.oriented(a, b, c, precision)
    if choice.few is not None:
        if b.shape[1] < a.shape[0]:
            a, b, c = b.t(), a.t(), c.t()
        multiply_few(choice.few, a, b, c)
        return
    aligned = [pipelined.alignment(x) for x in (a, b)]
    if choice.padded:
        a, b = padded(a, b, aligned)
        aligned = [VECTOR, VECTOR]
    if choice.way == "pipelined":
        pipelined.launch_pipelined(a, b, c, scale_a, scale_b, precision, *aligned)
    else:
        K_part = parts.part_terms(a.shape[1], choice.parts)
        parts.launch_parts(a, b, c, scale_a, scale_b, precision, K_part, *aligned)


def padded(a: Tensor, b: Tensor, aligned: list[int]) -> tuple[Tensor, Tensor]:
    """a and b, copied where their rows do not begin and end at multiples of 16 bytes; zeros follow the rows' ends."""
    if aligned == [1, 1]:
        return both_zero_padded(a, b)
    return (zero_padded(a) if aligned[0] == 1 else a), (zero_padded(b) if aligned[1] == 1 else b)
