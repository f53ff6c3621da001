"""Measures the bounds from both sides: the smallest errors that are refused, and honest results that are refused.

    python -m validation.sensitivity                        # the smallest refused errors, as Markdown
    python -m validation.sensitivity --honest --seeds 20    # counts honest results that are refused
    python -m validation.sensitivity --honest --shard 1/4   # in a quarter of the cases
    python -m validation.sensitivity --honest --seconds 60  # in cases drawn at random, as many as the time allows
    python -m validation.sensitivity --op sum --dtype float32

An error is added to the correctly rounded truth of normal inputs, on a CPU. `scale`: all elements of one result are too
large by one factor. `element`: one element is wrong, the one of median sensitivity among those that are not 0. If there
are several results, the least sensitive one counts; whole numbers are left out. Both are in units of u, the unit
roundoff of the result's type.

Honest results are those of every implementation that computes on the CPU by a library (torch, NumPy, XLA), on the
telling cases and the default cases. Those that a library is known to get wrong are counted apart, and cases that it
always gets wrong are left out. Exit status: 1 if one of the others is refused.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests/ has the table of known limits of libraries

from suite import frameworks, ops  # noqa: E402
from suite.checking.check import judge_draw  # noqa: E402
from suite.checking.judge import judge_together  # noqa: E402
from suite.checking.problem import Problem  # noqa: E402
from suite.checking.telling_cases import is_beyond  # noqa: E402
from suite.hardware.device import Device  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.implementations.implementation import Implementation  # noqa: E402
from suite.numerics.formats import DTYPES, DTYPES_BEYOND, unit_roundoff  # noqa: E402
from suite.problem import outputs  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.problem.operation import Operation  # noqa: E402
from suite.results.render import pipe_table  # noqa: E402
from validation.shard import WHOLE, Shard  # noqa: E402

CPU = torch.device("cpu")
LIBRARIES = ("torch", "numpy", "jax")
"""Frameworks whose functions compute on a CPU as fast as a library; the others are interpreted or emulated there."""
STEPS = 14
"""Bisections of the exponent of a refused error, from 2^-8 u to 1 / u: exact to 1%."""
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "vector_add": ((4096,), (2**20,)),
    "matrix_add": ((64, 64), (1024, 1024)),
    "sigmoid": ((4096,), (2**20,)),
    "sum": ((64, 256), (2048, 2048)),
    "softmax": ((16, 256), (4, 131_072)),
    "rms_norm": ((16, 256), (4, 131_072)),
    "layer_norm": ((16, 256), (4, 131_072)),
    "matmul": ((64, 64, 64), (128, 128, 4096)),
    "linear_sigmoid": ((64, 64, 64), (128, 128, 4096)),
    "linear_sigmoid_grad": ((64, 64, 64), (512, 256, 256)),
    "conv2d": ((1, 8, 8, 16, 16, 3, 3, 1, 1), (4, 14, 14, 256, 64, 3, 3, 1, 1)),
    "attention": ((1, 2, 1, 64, 64, 64), (1, 2, 1, 64, 4096, 64)),
    "attention_grad": ((1, 2, 1, 64, 64, 64), (1, 2, 1, 256, 1024, 64)),
    "multi_head_attention": ((1, 32, 128, 2), (2, 256, 256, 4)),
    "lstm": ((4, 8, 16, 32), (32, 16, 128, 128)),
    "silu_mul": ((16, 256), (64, 16_384)),
    "silu_mul_grad": ((16, 256), (64, 16_384)),
    "rope": ((1, 64, 2, 1, 64), (1, 1024, 4, 2, 128)),
    "add_rms_norm": ((16, 256), (4, 131_072)),
    "rms_norm_grad": ((16, 256), (512, 2048)),
    "layer_norm_grad": ((16, 256), (512, 2048)),
    "max_pool2d": ((1, 8, 8, 16, 3, 3, 2, 1), (4, 28, 28, 64, 3, 3, 2, 1)),
    "max_pool2d_grad": ((1, 8, 8, 16, 3, 3, 2, 1), (4, 28, 28, 64, 3, 3, 2, 1)),
    "quantize": ((16, 256), (64, 8192)),
    "cumsum": ((16, 256), (4, 131_072)),
    "paged_attention": ((2, 4, 2, 1, 64, 64, 16), (4, 8, 2, 1, 4096, 64, 64)),
    "cross_entropy": ((16, 256), (4, 131_072)),
    "linear_cross_entropy": ((64, 64, 64), (64, 4096, 256)),
    "adam_step": ((4096,), (2**20,)),
    "silu_mul_quantize": ((16, 256), (64, 8192)),
    "rms_norm_quantize": ((16, 256), (64, 8192)),
    "int4_matmul": ((16, 64, 256), (16, 64, 8192)),
    "block_scaled_matmul": ((64, 64, 256), (64, 64, 4096)),
    "grouped_matmul": ((64, 4, 64, 64), (128, 4, 4096, 128)),
    "grouped_matmul_grad": ((64, 4, 64, 64), (4096, 4, 128, 128)),
    "grouped_block_scaled_matmul": ((64, 2, 256, 64), (64, 2, 4096, 64)),
}
"""A small and a large size of operations."""


def sizes_of(op: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a small and a large size: those of SIZES, or else the usual and the default size of the operation."""
    return SIZES.get(op.name) or (op.usual_shape, op.default_cases("cpu")[0].shape)


@dataclass(frozen=True)
class Sensitivity:
    """The smallest refused errors on one case, in units of u."""

    case: Case
    scale: float
    element: float


def measure(case: Case, seed: int = 0) -> Sensitivity:
    """Return the smallest errors of `case` that are refused."""
    problem = Problem(case, seed, CPU)
    value, limit = (torch.empty(problem.output_shape, dtype=torch.float64) for _ in range(2))
    for truth in problem.truth(0):
        value[truth.index], limit[truth.index] = truth.value, truth.limit
    dtypes = problem.op.output_dtypes(case)
    sizes = [math.prod(shape) for shape in problem.output_shapes]
    starts = outputs.starts(problem.output_shapes)
    parts = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def refused(places: slice, error: float) -> bool:
        wrong = value.clone().view(-1)
        wrong[places] *= 1.0 + error
        for part, dtype in zip(parts, dtypes, strict=True):
            wrong[part] = wrong[part].to(getattr(torch, dtype)).double()
        return not judge_draw(wrong.view(value.shape).to(getattr(torch, problem.output_dtype)), problem, 0).agrees

    scale = element = 0.0
    for part, dtype in zip(parts, dtypes, strict=True):
        if not getattr(torch, dtype).is_floating_point:
            continue
        u, beyond = unit_roundoff(dtype), torch.finfo(getattr(torch, dtype)).max / 2.0
        middle = part.start + median_index(value.view(-1)[part], limit.view(-1)[part], beyond)
        scale = max(scale, smallest(partial(refused, part), u) / u)
        element = max(element, smallest(partial(refused, slice(middle, middle + 1)), u) / u)
    return Sensitivity(case, scale, element)


def median_index(value: torch.Tensor, limit: torch.Tensor, beyond: float) -> int:
    """Return the index of the element with the median of bound / element, among those that are not 0.

    Elements whose double is `beyond` the largest number are left out.
    """
    places = ((value != 0.0) & (value.abs() <= beyond)).nonzero()[:, 0]
    order = (limit[places] / value[places].abs()).argsort()
    return int(places[order[len(order) // 2]])


def smallest(refused: Callable[[float], bool], u: float) -> float:
    """Return the smallest refused error by bisection of its exponent; infinite if an error of 1 is accepted."""
    low, high = math.log2(u) - 14.0, 0.0
    if not refused(2.0**high):
        return math.inf
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if refused(2.0**middle) else (middle, high)
    return 2.0**high


def sensitivity_rows(operations: Sequence[str], dtypes: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row of the table for each operation and dtype, with the results at the small and at the large size."""
    for name in operations:
        for dtype in supported(ops.get(name), dtypes):
            found = [measure(ops.get(name).case(shape, dtype)) for shape in sizes_of(ops.get(name))]
            cells = [f"{value:.3g}" for each in found for value in (each.scale, each.element)]
            yield [name, dtype, *cells, "; ".join(each.case.label for each in found)]


def supported(op: Operation, dtypes: Sequence[str]) -> list[str]:
    return [dtype for dtype in dtypes if dtype in (*op.dtypes, *op.dtypes_beyond)]


HEADS = ["operation", "dtype", "scale, small", "element, small", "scale, large", "element, large", "sizes"]


class Honest(NamedTuple):
    """An honest result: its name, the reason if it is refused, and the known limit that explains a refusal."""

    name: str
    reason: str
    limit: str


def honest(
    operations: Sequence[str], dtypes: Sequence[str], seeds: Sequence[int], shard: Shard = WHOLE
) -> Iterator[Honest]:
    """Yield all honest results. shard: the share of the cases.

    A round has each case once, in random order, with another seed than the rounds before, so that those who stop early
    have seen all operations and seeds.
    """
    for framework in LIBRARIES:
        frameworks.get(framework).prepare(Device("cpu"))
    lines = {name: honest_lines(name) for name in operations}
    cases = [case for name in operations for case in honest_cases(ops.get(name), dtypes)]
    random.Random(0).shuffle(cases)
    for start in range(len(seeds)):
        for number, case in enumerate(shard.of(cases), start):
            able = [
                each
                for each in lines[case.operation]
                if not (is_limited(each, case) or each.obstacle(Device("cpu"), case))
            ]
            yield from honest_results(able, case, seeds[number % len(seeds)])


def honest_lines(operation: str) -> list[Implementation]:
    return [
        each
        for each in builtin.implementations(operation)
        if each.framework in LIBRARIES and each.peer is None and each.obstacle(Device("cpu")) is None
    ]


def honest_cases(op: Operation, dtypes: Sequence[str]) -> list[Case]:
    """Return the default cases and the telling cases of these dtypes."""
    cases = [case for case in op.plain_cases("cpu", op.dtypes_beyond) if case.dtype in dtypes]
    for dtype in supported(op, dtypes):
        cases += op.telling_cases(dtype, op.precisions(dtype)[0]).values()
    return list(dict.fromkeys(cases))


def is_limited(line: Implementation, case: Case) -> bool:
    """True if a library is known to get the case wrong."""
    from known_limits import KNOWN

    dtypes, _ = KNOWN.get(("cpu", case.operation, line.name, case.inputs), ((), ""))
    return case.dtype in dtypes or is_beyond(line.adapter, case, CPU)


def limit_of(line: str, case: Case) -> str:
    """Return the limit of a library that makes its result wrong for some draws; empty if none is known."""
    from known_limits import SOME_DRAWS

    dtypes, why = SOME_DRAWS.get((case.operation, line, case.inputs), ((), ""))
    return why if case.dtype in dtypes else ""


def honest_results(lines: Sequence[Implementation], case: Case, seed: int) -> Iterator[Honest]:
    """Yield the result of each implementation for one draw."""
    op, found = ops.get(case.operation), dict[str, torch.Tensor]()
    inputs = op.make_inputs(case, seed, CPU)
    for line in lines:
        try:
            called = line.adapter.called_with(line.function(), inputs)
            result = called(*map(line.adapter.to_native, inputs), **op.arguments(case))
        except NotImplementedError:
            continue
        results = result if isinstance(result, tuple) else (result,)
        found[line.name] = outputs.joined([line.adapter.to_torch(each).detach() for each in results])
    shapes, names = op.output_shapes(case), op.outputs or ("",)
    verdicts = judge_together(
        list(found.values()),
        op.exact_truth(inputs, case),
        shape=op.output_shape(case),
        dtype=op.output_dtype(case),
        results=tuple(zip(names, outputs.starts(shapes), strict=True)),
    )
    for name, verdict in zip(found, verdicts, strict=True):
        full_name = f"{case.operation} {case.label} {case.dtype} {name} seed {seed}"
        yield Honest(full_name, verdict.reason, limit_of(name, case))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=ops.alone(), help="operation; may be repeated; default: all")
    known = [*DTYPES, *DTYPES_BEYOND]
    parser.add_argument("--dtype", action="append", choices=known, help="default: those of 16 and 32 bits")
    parser.add_argument("--honest", action="store_true", help="count refused honest results instead")
    parser.add_argument("--seeds", type=int, default=20, help="draws of inputs of each honest result")
    parser.add_argument("--shard", type=Shard.parse, default=WHOLE, help="2/4: the second quarter of the cases")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end the count of honest results after these")
    options = parser.parse_args(arguments)
    operations, dtypes = options.op or ops.alone(), options.dtype or list(DTYPES)
    if not options.honest:
        print(pipe_table(HEADS, list(sensitivity_rows(operations, dtypes)), right=set(HEADS[2:6])))
        return 0
    return count_honest(honest(operations, dtypes, range(options.seeds), options.shard), options.seconds)


def count_honest(results: Iterable[Honest], seconds: float) -> int:
    """Print how many honest results are refused, and each of these; return the exit status."""
    count, refused, limited, end = 0, 0, 0, time.monotonic() + seconds
    torch.set_num_threads(1)  # the problems are small
    for each in results:
        if time.monotonic() > end:
            print(f"ended after {seconds:g} s, before all results", flush=True)
            break
        count += 1
        if each.reason:
            refused, limited = refused + (not each.limit), limited + bool(each.limit)
            kind = f"limit ({each.limit})" if each.limit else "refused"
            print(f"{kind}: {each.name}: {each.reason}", flush=True)
    apart = f"; {limited} others by known limits of libraries" if limited else ""
    print(f"{refused} of {count} honest results are refused{apart}")
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
