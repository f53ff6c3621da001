"""The variants that a wrong result is compared with, each with its kind.

The usual ones come from the operation's file in `suite/variants`, from unusual inputs and from the truth itself. Those
that are declared follow from the operands, their layout, and the options and arguments of the operation; they hold for
any operation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from suite import variants
from suite.checking import general_variants
from suite.checking.declared import axis_names, operand_names, result_axis_names
from suite.checking.fits import Rank
from suite.checking.operand_variants import changed_operands
from suite.checking.survey import Piece
from suite.numerics.formats import MAX_FINITE, MIN_EXPONENT
from suite.problem.case import Case
from suite.problem.variant import Inputs, Variant

if TYPE_CHECKING:
    from suite.checking.problem import Problem

MAX_WORK, MAX_ELEMENTS = 2**27, 2**20
"""Most flops, and most elements, of a result for which the truth of other inputs is computed."""
Candidates = Iterator[tuple[Rank, Variant]]
Mistakes = Iterator[tuple[str, Inputs, Case]]
"""Yields each mistake as other inputs and another case: their truth is the wrong result."""


def usual(piece: Piece, is_whole: bool, draw: int, problem: Problem, wanted: Collection[str]) -> Candidates:
    """Yield the variants that the operation's file, unusual inputs and the truth itself give for a part of the result.

    is_whole: the part is the whole result. wanted: mistakes to consider, or all.
    """
    inputs, op = problem.draws[draw], problem.op
    yield from _ranked(Rank.INPUTS, _truths(_unusual_inputs(problem, draw), piece, problem, wanted))
    # a user's operation may have the name of one in the tree
    given = variants.find(problem.case.operation) if op.source is None else None
    if given is not None:
        yield from _ranked(Rank.OPERATION, given(inputs, problem.case, piece.part))
    yield from _ranked(Rank.RESULT, general_variants.scaled(piece, problem.output_dtype))
    if is_whole and piece.output.ndim:
        yield from _ranked(Rank.RESULT, _from_result_alone(piece, problem))
    if draw:
        yield from _ranked(Rank.INPUTS, _truths(_earlier_inputs(problem, draw), piece, problem, wanted))


def declared(piece: Piece, is_whole: bool, draw: int, problem: Problem, wanted: Collection[str]) -> Candidates:
    """Yield the results of other options and arguments, and of operands that are read otherwise: mistakes that follow
    from the operation's declaration."""
    yield from _ranked(Rank.OPERANDS, _truths(_declared(problem, draw), piece, problem, wanted))


def _ranked(rank: Rank, found: Iterable[Variant]) -> Candidates:
    for variant in found:
        yield rank, variant


def _truths(mistakes: Mistakes, piece: Piece, problem: Problem, wanted: Collection[str]) -> Iterator[Variant]:
    """Yield the piece's part of the truth of each wanted mistake. Others are not computed, and none if it is large."""
    if problem.op.flops(problem.case) > MAX_WORK or math.prod(problem.output_shape) > MAX_ELEMENTS:
        return
    for mistake, inputs, case in mistakes:
        if not wanted or mistake in wanted:
            value, limit = (
                torch.zeros(problem.output_shape, dtype=torch.float64, device=problem.device) for _ in range(2)
            )
            for truth in problem.op.truth(inputs, case):
                value[truth.index], limit[truth.index] = truth.value, truth.limit
            yield Variant(mistake, value[piece.part], limit[piece.part])


def _from_result_alone(piece: Piece, problem: Problem) -> Iterator[Variant]:
    if not problem.op.outputs:
        (axes,) = result_axis_names(problem.op, problem.case)
        yield from general_variants.repeated(piece, axes)
        yield from general_variants.moved(piece)
        yield from general_variants.accumulated(piece)
    else:
        names = [name for each in result_axis_names(problem.op, problem.case) for name in each[:1]]
        yield from general_variants.repeated_results(piece, problem.output_shapes, names)
        yield from general_variants.moved(piece)


def _declared(problem: Problem, draw: int) -> Mistakes:
    inputs, op = problem.draws[draw], problem.op
    for mistake, case in _other_cases(problem):
        yield mistake, inputs, case
    axes = axis_names(op, problem.case)
    if len(axes) <= len(inputs):
        operands = inputs[: len(axes)]
        for mistake, changed in changed_operands(operands, operand_names(op, len(operands)), axes):
            yield mistake, (*changed, *inputs[len(axes) :]), problem.case


def _other_cases(problem: Problem) -> Iterator[tuple[str, Case]]:
    """Yield the cases with another option, and those with the argument of another family of inputs."""
    op, case = problem.op, problem.case
    for option in op.options:
        for value in option.others(op.option_values(case)[option.name]):
            other = op.with_options(case, **{option.name: value})
            alike = op.output_shapes(other) == op.output_shapes(case) and op.operands(other) == op.operands(case)
            if alike and other != case:
                yield f"{option.name} was {value}", other
    now = op.arguments(case)
    for name in op.families:
        other = replace(case, inputs=name)
        for argument, value in op.arguments(other).items():
            if argument in now and now[argument] != value:
                yield f"{argument} was {value:g}" if isinstance(value, float) else f"{argument} was {value}", other


def _unusual_inputs(problem: Problem, draw: int) -> Mistakes:
    """Yield the results of inputs in which subnormals, NaN or infinities are replaced by other numbers, or which went
    through float16."""
    dtype = problem.case.dtype
    smallest, largest = 2.0 ** MIN_EXPONENT[dtype], MAX_FINITE[dtype]
    given = [x.double() for x in problem.draws[draw]]
    flushed = [torch.where(x.abs() < smallest, 0.0, x) for x in given]
    replacements = {
        "subnormal inputs were taken for 0": flushed,
        "NaN was taken for 0, infinity for the largest number": [x.nan_to_num(0.0, largest, -largest) for x in given],
        "NaN was taken for 0": [torch.where(x.isnan(), 0.0, x) for x in given],
    }
    if dtype == "bfloat16":
        replacements["inputs were converted to float16"] = [x.half().double() for x in given]
    names = operand_names(problem.op, len(given))
    for position, name in enumerate(names) if len(given) > 1 else ():
        some = [flushed[i] if i == position else x for i, x in enumerate(given)]
        replacements[f"subnormal numbers of {name} were taken for 0"] = some
    tried: list[list[torch.Tensor]] = [given]
    for mistake, changed in replacements.items():
        if not any(all(map(_same, changed, other)) for other in tried):
            tried.append(changed)
            inputs = tuple(
                other.to(x.dtype) if x.is_floating_point() else x
                for other, x in zip(changed, problem.draws[draw], strict=True)
            )
            yield mistake, inputs, problem.case


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.isnan(), other.isnan()) and bool(torch.equal(one.nan_to_num(0.0), other.nan_to_num(0.0)))


def _earlier_inputs(problem: Problem, draw: int) -> Mistakes:
    """Yield the results with some or all arguments of the first call."""
    now, before = problem.draws[draw], problem.draws[draw - 1]
    count = len(now)
    for chosen in (*general_variants.subsets(count), tuple(range(count))):
        inputs = tuple(before[i] if i in chosen else now[i] for i in range(count))
        names = " and ".join(str(i + 1) for i in chosen)
        which = f"arguments {names} were" if len(chosen) > 1 else f"argument {names} was"
        mistake = "it was the result of an earlier call" if len(chosen) == count else f"{which} of an earlier call"
        yield mistake, inputs, problem.case
