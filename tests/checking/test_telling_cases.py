"""Telling cases: what they find in a kernel that is right in the usual case."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import cheats
import pytest
import torch
from cheats import Cheat
from checked_calls import CPU, JAX, NUMPY, TORCH
from external_files import external, write
from thinning import covering_parts, thorough_unless
from tries import passes_once

from suite import frameworks, ops
from suite.checking.problem import Problem, Problems
from suite.checking.repeats import Duration
from suite.checking.telling_cases import ProbeResult, is_beyond, probe
from suite.external.process import RaisedError
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.problem import accepted_cases
from suite.problem.accepted_cases import cases_for
from suite.worker.protocol import CheckReply, CheckRequest, ProbeReply, ProbeRequest
from suite.worker.session import Session

PROBLEMS: dict[tuple[str, str], Mapping[str, Problem]] = {}


def problems(operation: str, dtype: str = "") -> Mapping[str, Problem]:
    op = ops.get(operation)
    dtype = dtype or op.dtypes[0]
    if (operation, dtype) not in PROBLEMS:
        cases = op.telling_cases(dtype, op.precisions(dtype)[0])
        PROBLEMS[operation, dtype] = Problems(cases, lambda case: Problem(case, 0, CPU))
    return PROBLEMS[operation, dtype]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(Device("cpu", name="CPU"), lambda started: None)
    yield session
    session.external.close()


def test_a_right_function_passes_all() -> None:
    assert probe(lambda case: torch.add, TORCH, problems("vector_add")) == ProbeResult(tuple(problems("vector_add")))


def test_the_reason_names_the_first_case_that_is_wrong() -> None:
    called: list[str] = []
    result = probe(
        lambda case: lambda a, b: a.nan_to_num() + b.nan_to_num(), TORCH, problems("vector_add"), on_case=called.append
    )
    assert "largest" in result.passed
    assert result.reason.endswith("(in the telling case infinity: N=1025,inputs=infinity)")
    assert called[-1] == "infinity"


def test_a_shortcut_for_two_repeated_operands_is_refused() -> None:
    """It forgets the length of the sum; with one repeated operand, and in all other cases, it is right."""

    def product(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
        if a.shape[1] > 1 and a.stride(1) == 0 and b.stride(0) == 0:
            return a[:, :1] @ b[:1]
        return a @ b

    cases = problems("matmul")
    result = probe(lambda case: product, TORCH, {name: cases[name] for name in cases if "repeated" in name})
    assert "(in the telling case repeated1/repeated0: M=31,N=31,K=31," in result.reason
    assert len(result.passed) == 4


def read_as_dense(x: torch.Tensor) -> torch.Tensor:
    strides = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    return x.as_strided(x.shape, strides)


@pytest.mark.parametrize(
    ("name", "is_wrong"),
    [
        # Wide loads of whole rows, without the stride of a row.
        ("softmax", lambda x: x.shape[1] % 8 == 0 and x.stride(0) % 8 == 0 and x.stride(1) == 1),
        ("cumsum", lambda x: x.shape[1] % 8 == 0 and x.stride(0) == 2 * x.shape[1]),
        ("softmax", lambda x: x.stride() == (0, 0) and min(x.shape) > 1),
    ],
)
def test_rows_that_are_taken_for_dense_are_refused(name: str, is_wrong: Any) -> None:
    right = {"softmax": lambda x: x.softmax(1), "cumsum": lambda x: x.cumsum(1)}[name]
    cases = problems(name)
    found = probe(lambda case: lambda x: right(read_as_dense(x) if is_wrong(x) else x), TORCH, cases)
    assert found.reason


@pytest.mark.parametrize("size", [2, 102, 120, 176, 480, 1920])
def test_a_mistake_at_a_remainder_of_a_power_of_two_is_refused(size: int) -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        low = len(a) & -len(a)
        return a + b * (2.0 if low == size & -size and len(a) <= max(size, 15) else 1.0)

    assert probe(lambda case: add, TORCH, problems("vector_add")).reason


def test_a_mistake_at_rows_beyond_a_thousand_that_are_no_power_of_two_is_refused() -> None:
    """Blocks of the next power of two, whose instance of 2048 is wrong; and groups of 8 rows in a grid of many."""
    cases = problems("softmax")
    for axis in (0, 1):

        def softmax(x: torch.Tensor, axis: int = axis) -> torch.Tensor:
            y = x.softmax(1)
            if 1024 < x.shape[axis] <= 2048:
                y.select(axis, -1).zero_()
            return y

        assert probe(lambda case: softmax, TORCH, cases).reason


def test_a_nan_that_is_lost_at_the_beginning_of_rows_or_times_zeros_is_refused() -> None:
    def softmax(x: torch.Tensor) -> torch.Tensor:
        first = x[:, :1].clone()
        return torch.cat((torch.where(first.isnan(), 0.0, first), x[:, 1:]), 1).softmax(1)

    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
        filled = (a != 0).any(0)
        return a[:, filled] @ b[filled]

    for name, function in (("softmax", softmax), ("matmul", matmul)):
        found = probe(lambda case, function=function: function, TORCH, problems(name, "float16"))
        assert found.reason.startswith("not finite") or "expected nan" in found.reason


def test_a_tail_that_counts_as_zeros_in_a_maximum_is_refused() -> None:
    """It shows in rows of an odd length, whose numbers are all far below 0 or whose results are subnormal."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        largest = x.float().amax(1, keepdim=True)
        e = (x.float() - (largest.clamp(min=0) if x.shape[1] % 2 and x.shape[1] > 1 else largest)).exp()
        return (e / e.sum(1, keepdim=True)).to(x.dtype)

    cases = problems("softmax")
    assert probe(lambda case: softmax, TORCH, {name: cases[name] for name in cases if "below" in name}).reason


def test_an_option_that_is_lost_in_a_large_batch_is_refused() -> None:
    right = builtin.find("rope", "torch").function()

    def rope(q: torch.Tensor, *others: torch.Tensor, layout: str = "halves", inverse: bool = False) -> Any:
        return right(q, *others, layout=layout, inverse=inverse and len(q) < 64)

    cases = problems("rope")
    some = {name: cases[name] for name in cases if re.match(r"B=\d{2,},.*direction=inverse$", name)}
    found = probe(lambda case: rope, TORCH, some)
    assert "direction=inverse" in found.reason


def test_a_case_that_is_not_covered_is_left_out() -> None:
    def multiply(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
        if a.shape[1] % 2:
            raise NotImplementedError("odd K")
        return a @ b

    result = probe(lambda case: multiply, TORCH, problems("matmul"))
    assert result.reason == ""
    left_out = set(problems("matmul")) - set(result.passed)
    assert left_out == {name for name in problems("matmul") if problems("matmul")[name].case["K"] % 2}


def test_an_argument_that_the_usual_case_does_not_pass_may_be_missing() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
        seen.append(causal)
        raise NotImplementedError

    seen: list[bool] = []
    result = probe(lambda case: attention, TORCH, problems("attention"))
    arguments = {name: each.op.arguments(each.case) for name, each in problems("attention").items()}
    passing = [name for name, given in arguments.items() if {"sm_scale", "window"} & set(given)]
    assert 0 < len(seen) == len(arguments) - len(passing)
    assert not any("window" in arguments[name] for name in result.not_covered), "no line needs to have windows"


def test_a_framework_answers_for_its_own_limits() -> None:
    assert "subnormal" in JAX.limits(CPU)
    assert "subnormal" not in NUMPY.limits(CPU)
    assert JAX.limits(torch.device("cuda", 0)) == {}

    def flushes(a: Any, b: Any) -> Any:
        return torch.where(a.abs() < 1e-37, 0, a) + torch.where(b.abs() < 1e-37, 0, b)

    assert "telling case subnormal" in probe(lambda case: flushes, TORCH, problems("vector_add")).reason


def test_programs_of_single_rows_are_not_interpreted_by_the_ten_thousand() -> None:
    """The interpreter takes minutes for 65,795 of them, and would be stopped. On a GPU they are compiled."""
    triton, case = frameworks.get("triton"), ops.get("quantize").telling_cases("float32", "ieee")["M=65795,N=2"]
    assert is_beyond(triton, case, CPU)
    assert not is_beyond(triton, case, torch.device("cuda", 0))
    assert not is_beyond(TORCH, case, CPU)
    assert not any(is_beyond(triton, problems("softmax")[name].case, CPU) for name in ("M=2053", "longest_row"))


def refusal(session: Session, cheat: Cheat) -> str:
    """The reason why a plain run refuses a user's file, on its own case or on a telling one; empty if it is right."""
    op, implementation = ops.get(cheat.operation), external(cheat.path, cheat.operation)
    case = op.case(op.parse_shapes(cheat.shape)[0], cheat.dtype)
    reply = session.handle(CheckRequest(case, implementation.reference, 0))
    assert isinstance(reply, CheckReply)
    if reply.status == "wrong":
        return reply.reason
    result = session.handle(ProbeRequest(case, implementation.reference, 0))
    assert isinstance(result, ProbeReply)
    assert (result.status == "wrong") is bool(result.reason)
    assert result.checked or result.reason
    return result.reason


def entries(gallery: list[Cheat], kinds: tuple[str, ...]) -> list[object]:
    """Those that run on a CPU; in `make test` some, with every kind and type of file.

    `test_judged_timing.py` has whole runs of some twins, which are `thorough` here.
    """
    names = {cheat.name: cheat.kind for cheat in cheats.cheats()}
    found = [each for each in gallery if not each.gpu and names[each.twin_of or each.name] in kinds]
    few = {each.name: each for each in found if not (each.twin_of and each.in_whole_runs)}
    kept = covering_parts([*few], lambda name: {few[name].kind, few[name].path.suffix})
    return [pytest.param(each, id=each.name, marks=thorough_unless(each.name in kept)) for each in found]


BY_CHANCE = ("narrow_half_of_its_calls", "narrow_one_call_in_ten", "narrow_race")
"""Wrong in some calls. The check makes as many as its time allows, which are fewer on a busy machine."""


@pytest.mark.parametrize("cheat", entries(cheats.cheats(), ("narrow", "memory")))
def test_narrow_and_trespassing_kernels_are_refused(session: Session, cheat: Cheat) -> None:
    def refused(_: int) -> None:
        assert refusal(session, cheat)

    passes_once(refused, range(20 if cheat.name in BY_CHANCE else 1))


@pytest.mark.parametrize("twin", entries(cheats.twins(), tuple(cheats.KINDS)))
def test_honest_twins_pass(session: Session, twin: Cheat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated for a shorter time than usual."""
    monkeypatch.setattr("suite.checking.repeats.TELLING_FILE_S", 0.056)
    monkeypatch.setattr("suite.checking.repeats.CHECKED_FILE", Duration(0.016))
    assert refusal(session, twin) == ""


def test_a_function_without_scales_does_not_cover_float8(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "plain.py", "def matmul(a, b, *, precision='ieee'):\n    return a @ b\n")
    case = ops.get("matmul").case((16, 16, 16), "float8_e4m3fn")
    reply = session.handle(CheckRequest(case, external(path, "matmul").reference, 0))
    assert isinstance(reply, CheckReply)
    assert reply.status == "unsupported"
    assert reply.reason.startswith("takes 2 arrays, and a case of float8_e4m3fn has 4: matmul(a, b, scale_a=None")


ONE_LAYER = "import torch\ndef lstm(x, w_ih, w_hh, bias, h0, c0):\n    return x, h0, c0\n"


def test_a_function_without_the_operands_of_an_option_does_not_cover_it(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "one_layer.py", ONE_LAYER)
    case = ops.get("lstm").case((2, 3, 4, 4), layers="2")
    reply = session.handle(CheckRequest(case, external(path, "lstm").reference, 0))
    assert isinstance(reply, CheckReply)
    assert reply.status == "unsupported"
    assert reply.reason.startswith("takes 6 arrays, and a case of layers=2 has 7: lstm(x, w_ih, w_hh, bias, ")


def test_telling_cases_have_no_operands_that_the_case_lacks() -> None:
    op = ops.get("lstm")
    one, two = (
        cases_for(op, op.case((2, 3, 4, 4), layers=layers), first=False, device_type="cpu") for layers in ("1", "2")
    )
    assert {case.option("layers", "1") for case in one.values()} == {"1"}
    assert {case.option("layers", "1") for case in two.values()} == {"1", "2", "3", "4"}
    assert one.items() < two.items()
    sizes = {(case["I"], case["H"]) for name, case in two.items() if case.option("layers") and name.startswith("T=")}
    assert {(i, h) for i in (31, 257) for h in (1, 64)} <= sizes, "layers have pairs of sizes of their own"


def test_a_function_of_another_signature_is_an_error_as_before(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "unary.py", "def matmul(a):\n    return a\n")
    case = ops.get("matmul").case((16, 16, 16), "float8_e4m3fn")
    with pytest.raises(RaisedError, match="TypeError"):
        session.handle(CheckRequest(case, external(path, "matmul").reference, 0))


def test_an_error_names_the_telling_case(session: Session, tmp_path: Any) -> None:
    text = (
        "def vector_add(a, b):\n    if not a.is_contiguous():\n        raise KeyError('no strides')\n    return a + b\n"
    )
    path = write(tmp_path / "raises.py", text)
    request = ProbeRequest(ops.get("vector_add").case((64,)), external(path).reference, 0)
    with pytest.raises(RaisedError, match="KeyError") as raised:
        session.handle(request)
    failed = session.failed(request, raised.value)
    assert failed.implementation == "with/raises"
    assert "no strides" in failed.reason
    assert "in the telling case repeated0/dense (NotImplementedError says that one is not covered)" in failed.reason


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [
        ("assert a.is_contiguous(), 'no strides'", "AssertionError: no strides (declines.py:2)"),
        pytest.param(
            *("if not a.is_contiguous(): raise NotImplementedError('strides')", "strides"), marks=pytest.mark.thorough
        ),
    ],
)
def test_a_telling_case_that_a_file_declines_is_not_covered_and_noted(
    refuse: str, reason: str, session: Session, tmp_path: Any
) -> None:
    path = write(tmp_path / "declines.py", f"def vector_add(a, b):\n    {refuse}\n    return a + b\n")
    reply = session.handle(ProbeRequest(ops.get("vector_add").case((64,)), external(path).reference, 0))
    assert isinstance(reply, ProbeReply)
    assert reply.status == "ok"
    assert "strided" not in reply.checked.split(", ")
    assert reply.reason.startswith("telling cases that it does not cover: ")
    assert reply.reason.endswith(f"({reason})")
    assert "N=31,inputs=stepped/dense" in reply.reason


def test_an_assertion_in_another_call_is_an_error(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "asserts.py", "def vector_add(a, b):\n    assert len(a) == 0\n    return a + b\n")
    with pytest.raises(RaisedError, match="AssertionError"):
        session.handle(CheckRequest(ops.get("vector_add").case((64,)), external(path).reference, 0))


def test_an_option_with_its_default_is_left_out_for_a_function_without_it(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "two.py", "def matmul(a, b):\n    return a @ b\n")
    op, reference = ops.get("matmul"), external(path, "matmul").reference
    plain = session.handle(CheckRequest(op.case((16, 16, 16)), reference, 0))
    other = session.handle(CheckRequest(op.case((16, 16, 16), precision="tf32"), reference, 0))
    assert isinstance(plain, CheckReply)
    assert isinstance(other, CheckReply)
    assert (plain.status, other.status) == ("ok", "unsupported")
    assert other.reason.startswith("has no parameter for precision='tf32': matmul(a, b, ")


def test_an_argument_without_a_default_is_always_passed(session: Session, tmp_path: Any) -> None:
    path = write(tmp_path / "no_eps.py", "def rms_norm(x, weight):\n    return x * weight\n")
    with pytest.raises(RaisedError, match=r"TypeError.*eps"):
        session.handle(CheckRequest(ops.get("rms_norm").case((4, 8)), external(path, "rms_norm").reference, 0))


LAYERS_OF_THE_SECOND = """
from kernel_suite.torch_impls.lstm import lstm as right
def lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper=None):
    if w_ih_upper is not None:
        w_ih_upper = w_ih_upper[:1].expand(w_ih_upper.shape)
    return right(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
"""


def test_a_file_that_takes_the_operands_of_an_option_is_called_with_them(
    session: Session, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case itself has none of them, and a function without the parameter need not say that it declines them."""
    name, every = "T=2,B=3,I=3,H=2,layers=4", accepted_cases.cases_for
    monkeypatch.setattr(accepted_cases, "cases_for", lambda *given, **kw: {name: every(*given, **kw)[name]})
    path = write(tmp_path / "layers.py", LAYERS_OF_THE_SECOND)
    case = ops.get("lstm").case((2, 3, 4, 4))
    reply = session.handle(ProbeRequest(case, external(path, "lstm").reference, 0))
    assert isinstance(reply, ProbeReply)
    assert "in the telling case T=2,B=3,I=3,H=2,layers=4" in reply.reason
    cases = Problems({name: ops.get("lstm").telling_cases("float32", "ieee")[name]}, lambda each: Problem(each, 0, CPU))
    assert probe(lambda case: lambda x, w_ih, w_hh, bias, h0, c0: x, TORCH, cases) == ProbeResult(())
