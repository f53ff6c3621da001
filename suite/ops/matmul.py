"""matmul: C = A B, shapes (M, K) x (K, N), any strides; of float8, times a scale of A and one of B, in bfloat16."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch

from suite.numerics import check
from suite.problem import families as f
from suite.problem import generators as _draw
from suite.problem.operation import DTYPES, Case, Family, Operation, Shape

FLOAT8 = "float8_e4m3fn"


def rows_of_extremes(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A holds the largest number, of one sign in a row; B is small enough that no partial sum overflows.

    But B's first column is 1, so that the sums there go beyond the largest number, in any order.
    """
    (m, k), (_, n) = shapes
    sign = torch.randint(0, 2, (m, 1), generator=source, device=source.device) * 2.0 - 1.0
    a = (sign * f.largest(case)).expand(m, k).to(getattr(torch, case.dtype), copy=True)
    b = f.normals((k, n), case, source).float() / (8 * max(k, 1))
    b[:, :1] = 1.0
    return a.contiguous(), b.to(a.dtype)


def an_infinity_each(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """One infinite element in A, one in B, each of which meets a zero: the product of the two is NaN."""
    (m, k), (_, n) = shapes
    a, b = (f.normals(shape, case, source) for shape in shapes)
    in_a, in_b = f.below(k, source), f.below(k, source)
    f.put(b, 0.0, (in_a, f.below(n, source)))
    f.put(a, 0.0, (f.below(m, source), in_b))
    f.put(a, -math.inf, (f.below(m, source), in_a))
    f.put(b, math.inf, (in_b, f.below(n, source)))
    return a, b


def halves_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The second half of K repeats the first, with the other sign in B: what is left is a middle term, or zero."""
    a, b = (f.normals(shape, case, source) for shape in shapes)
    half = a.shape[1] // 2
    a[:, a.shape[1] - half :] = a[:, :half]
    b[b.shape[0] - half :] = (-b[:half].float()).to(b.dtype)
    return a, b


def exact_sums(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """From 1 up to 2 in steps of 1/4: 128 products, multiples of 1/16, add up to at most 392, less than 2^13 of those.

    All are positive, so that longer sums lose more and more; but where these are allowed the signs are random, and the
    steps larger if there are many.
    """
    fast = case.precision == "fast"
    steps = 2 if fast and shapes[0][1] > 2048 else 4
    a, b = (torch.randint(steps, 2 * steps, shape, generator=source, device=source.device) for shape in shapes)
    if fast:
        a *= 2 * torch.randint(0, 2, a.shape, generator=source, device=source.device) - 1
    return tuple((each / steps).to(getattr(torch, case.dtype)) for each in (a, b))


def grain(x: torch.Tensor) -> float:
    """The largest power of two that all finite elements, float8 numbers, are multiples of; 0 if all are 0."""
    found = torch.bincount(x.view(torch.uint8).reshape(-1), minlength=256).cpu() > 0
    numbers = torch.arange(256, dtype=torch.uint8).view(x.dtype).double()[found]
    smallest = 2 * check.half_smallest(FLOAT8)
    whole = math.gcd(*(int(number / smallest) for number in numbers.tolist() if math.isfinite(number)))
    return (whole & -whole) * smallest


def with_float8(families: dict[str, Family]) -> dict[str, Family]:
    """Those that float8 has too. It has no infinity."""
    without = ("infinity", "huge", "exact_sums")
    return {
        name: family if name in without else replace(family, dtypes=(*family.dtypes, FLOAT8))
        for name, family in families.items()
    }


class Matmul(Operation):
    name = "matmul"
    formula = "C[i, j] = sum over k of A[i, k] B[k, j]"
    dims = ("M", "N", "K")
    layouts = ("nn", "tn", "nt", "tt")
    sweep = tuple((n, n, n) for n in (32, 64, 128, 256, 512, 1024, 2048, 4096))
    ragged = ((1, 1, 1), (1, 129, 65), (65, 1, 127), (37, 41, 1), (64, 64, 64), (127, 65, 33), (129, 257, 100))
    dtypes_beyond = (FLOAT8,)
    families: ClassVar = with_float8(
        {
            "normal": f.normal(),
            "sizes": f.sizes(*ragged),
            "long_thin": f.long_thin((1, 1031, 3), (1031, 2, 1), (3, 2, 1031), (2, 3, 1024)),
            "empty": f.empty((3, 4, 0), (0, 4, 3), (3, 0, 4), (0, 0, 0)),
            "transposed": f.transposed(layouts, (33, 65, 34), (64, 32, 128)),
            "strided": f.strided_views((1, 1, 1), (33, 65, 34)),
            "offset": f.offset((33, 65, 34), (64, 32, 128)),
            "broadcast": f.broadcast((33, 65, 34), (64, 32, 128)),
            "subnormal": f.subnormal((33, 65, 34), values=f.each(f.subnormals, f.small_integers)),
            "largest": f.large((33, 65, 34), values=rows_of_extremes),
            "signed_zero": f.signed_zero((33, 65, 34)),
            "infinity": f.infinity((33, 65, 34), values=an_infinity_each),
            "nan": f.nan((33, 65, 34)),
            "cancellation": f.cancellation((33, 65, 34), (33, 65, 257), values=halves_that_cancel),
            "exact_sums": Family(
                "float8 whose sums are exact if they are no longer than they should be",
                exact_sums,
                shapes=((33, 65, 34), (48, 32, 4096)),
                dtypes=(FLOAT8,),
            ),
            "huge": f.huge((2**16 + 1, 2**15 + 1, 16), (2**27 + 1, 3, 17)),
        }
    )

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return {"float32": ("ieee", "tf32"), FLOAT8: ("promoted", "fast")}.get(dtype, ("ieee",))

    def plain_layout(self, dtype: str) -> str:
        """8-bit tensor core products need both operands along K in memory: A by rows, B by columns."""
        return "nt" if dtype == FLOAT8 else "nn"

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Of float8 also a scale of A and one of B, which are no powers of two: of normal numbers, so that results are
        of the size that standard normal numbers give; else so large that they are beyond float16.
        """
        operands = super().make_inputs(case, seed, device)
        if case.dtype != FLOAT8:
            return operands
        power = -7 if case.inputs == "normal" else 12
        drawn = torch.rand(2, generator=torch.Generator().manual_seed(seed)) / 2 + 1.25
        return *operands, *(each.clone() for each in (drawn * 2.0**power).to(device))

    def second(self, case: Case) -> Case:
        """Of float8 terms whose sums are exact: beside their errors, which are allowed, smaller ones do not show."""
        return replace(case, inputs="exact_sums") if case.dtype == FLOAT8 and case.inputs == "normal" else case

    def default_cases(self, device_type: str) -> list[Case]:
        """On a CPU only `ieee`: tf32 is an arithmetic of NVIDIA's tensor cores; ask for it with `--precision tf32`."""
        if device_type != "cuda":
            return [self.case((512, 512, 512), dtype) for dtype in DTYPES]
        kinds = [(dtype, precision) for dtype in DTYPES for precision in self.precisions(dtype)]
        return [self.case((size,) * 3, dtype, precision) for size in (1024, 2048, 4096) for dtype, precision in kinds]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((m, k), (k, n))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        m, n, k = case.shape
        b = inputs[1].double()
        b_squared = b.square()
        scale = math.prod(float(each) for each in inputs[2:])
        step = scale * grain(inputs[0]) * grain(inputs[1]) if case.dtype == FLOAT8 else 0.0
        for rows, columns in _draw.blocks((m, n)):
            a = inputs[0][rows].double()
            value = a @ b[:, columns]
            spread_squared = a.square() @ b_squared[:, columns]
            if case.dtype == FLOAT8:
                value, spread_squared = value.mul_(scale), spread_squared.mul_(scale**2)
                limit = check.float8_limit(value, spread_squared, step, k, m * n, case.output_dtype, case.precision)
            else:
                limit = check.matmul_limit(value, spread_squared, k, m * n, case.dtype, case.precision)
            del a, spread_squared
            yield check.Truth((rows, columns), value, limit)
            del value, limit

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["M"] * case["N"] * case["K"]

    def workspace_bytes(self, case: Case) -> int:
        m, n, k = case.shape
        rows = min(m, max(1, _draw.BLOCK_ELEMENTS // max(1, n)))
        return 8 * (2 * k * n + 2 * rows * k) + _draw.block_bytes((m, n), arrays=16 if case.dtype == FLOAT8 else 10)


OP = Matmul()
