"""Bounds of results in float64: right sums of any order pass, and anything of fewer bits is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from judging import CPU

from suite import ops
from suite.checking.judge import Verdict, judge
from suite.implementations import builtin
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.outputs import joined, starts
from suite.problem.truth import Truth

NAMES = [name for name in ops.names() if "float64" in ops.get(name).dtypes_beyond]
TELLING = ("nan", "infinity", "shifted", "range", "remembers")


def judged(op: Operation, case: Case, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> Verdict:
    return judged_by(list(op.exact_truth(inputs, case)), op, case, output)


def judged_by(truth: list[Truth], op: Operation, case: Case, output: torch.Tensor) -> Verdict:
    results = tuple(zip(op.outputs or ("",), starts(op.output_shapes(case)), strict=True))
    return judge(output, truth, shape=op.output_shape(case), dtype="float64", results=results)


def cases(op: Operation) -> Iterator[Case]:
    yield op.case(op.usual_shape, "float64")
    yield from (case for name, case in op.telling_cases("float64", "ieee").items() if name in TELLING)


def numpy_line(op: Operation, case: Case, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    found = builtin.find(op.name, "numpy").function()(*(x.numpy() for x in inputs), **op.arguments(case))
    return joined([torch.from_numpy(each) for each in (found if isinstance(found, tuple) else (found,))])


@pytest.mark.parametrize("name", NAMES)
def test_float64_arithmetic_is_right_and_float32_is_not(name: str) -> None:
    """In float32 are: everything; the operands; the result."""
    op = ops.get(name)
    for case in cases(op):
        inputs = op.make_inputs(case, 0, CPU)
        right, truth = numpy_line(op, case, inputs), list(op.exact_truth(inputs, case))
        verdict = judged_by(truth, op, case, right)
        assert verdict.agrees, (case.label, verdict.reason)
        assert verdict.error_ratio < 0.7
        if not right.isfinite().all() or not right.any():
            continue
        single = tuple(x.float() for x in inputs)
        everything = numpy_line(op, case, single).double()
        operands = numpy_line(op, case, tuple(x.double() for x in single))
        for wrong in (everything, operands, right.float().double()):
            if not torch.equal(wrong, right):  # small integers are exact in float32 too
                assert judged_by(truth, op, case, wrong).error_ratio > 100.0, case.label


def added(x: torch.Tensor, order: str) -> torch.Tensor:
    """Sums of the rows of x, in its type."""
    if order == "one by one":
        total = torch.zeros_like(x[:, 0])
        for column in x.unbind(1):
            total = total + column
        return total
    if order == "blocks":
        return added(torch.stack([added(each, "one by one") for each in x.split(32, dim=1)], 1), "one by one")
    while x.shape[1] > 1:
        x = torch.nn.functional.pad(x, (0, x.shape[1] % 2))
        x = x[:, 0::2] + x[:, 1::2]
    return x[:, 0]


@pytest.mark.parametrize("order", ["one by one", "blocks", "halves"])
@pytest.mark.parametrize("terms", [1, 2, 17, 1000, 4096])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_of_any_order_pass_and_float32_sums_do_not(order: str, terms: int, reverse: bool) -> None:
    """Sums of rows, and of the products of a matrix product."""
    generator = torch.Generator().manual_seed(terms)
    x, y = (torch.randn(64, terms, generator=generator, dtype=torch.float64) for _ in range(2))
    x = x.flip(1) if reverse else x
    op, case = ops.get("sum"), ops.get("sum").case((64, terms), "float64", axis="1")
    assert judged(op, case, (x,), added(x, order)).error_ratio < 0.67
    if terms > 1:
        assert judged(op, case, (x,), added(x.float(), order).double()).error_ratio > 1e3
    op, case = ops.get("matmul"), ops.get("matmul").case((64, 1, terms), "float64")
    products, vector = x * y[:1], (x, y[:1].T.contiguous())
    assert judged(op, case, vector, added(products, order)[:, None]).error_ratio < 0.67
    assert judged(op, case, vector, added(products.float(), order).double()[:, None]).error_ratio > 1e3


@pytest.mark.parametrize("name", ["sigmoid", "softmax", "attention", "lstm"])
def test_an_exponential_in_float32_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = ops.get(name)
    case = op.case(op.usual_shape, "float64")
    inputs = op.make_inputs(case, 0, CPU)

    def rounded(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *arguments, **options: function(*arguments, **options).float().double()

    with monkeypatch.context() as patch:
        for place, names in ((torch, ("sigmoid", "softmax", "tanh")), (torch.Tensor, ("sigmoid", "tanh"))):
            for each in names:
                patch.setattr(place, each, rounded(getattr(place, each)))
        output = torch.empty(op.output_shape(case), dtype=torch.float64)
        for piece in op.truth(inputs, case):
            output[piece.index] = piece.value
    assert judged(op, case, inputs, output).error_ratio > 1e3


def test_the_exact_result_decides_between_neighbours() -> None:
    """The sum of 1 and 2^-53 (1 + 2^-40) is nearer to the number after 1. Float64 alone sees both as equally near."""
    op = ops.get("sum")
    x = torch.tensor([[1.0, 2.0**-53, 2.0**-93]], dtype=torch.float64)
    (piece,) = op.exact_truth((x,), op.case((1, 3), "float64", axis="1"))
    assert piece.rest is not None
    assert (float(piece.value), float(piece.rest)) == (1.0 + 2.0**-52, 2.0**-93 - 2.0**-53)


def test_judging_leaves_a_float64_result_as_it_is() -> None:
    op = ops.get("vector_add")
    case = op.case((1025,), "float64", inputs="infinity")
    a, b = op.make_inputs(case, 0, CPU)
    output = a + b
    before = output.clone()
    assert judged(op, case, (a, b), output).agrees
    assert torch.equal(output.view(torch.int64), before.view(torch.int64))
