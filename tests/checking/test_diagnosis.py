"""The diagnosis of wrong results: what it names, what it must not name, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from checked_calls import TORCH, problem, run
from tries import passes_once

from suite import variants
from suite.checking import diagnosis
from suite.checking.diagnosis import diagnose
from suite.checking.survey import survey
from suite.checking.telling_cases import probe
from suite.problem.variant import Variant

MATMUL = {"operation": "matmul", "shape": (48, 48, 64)}


def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A matmul whose result is changed."""

    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        return change(a @ b)

    return matmul


def seeded(shape: torch.Size) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


STRANGERS = {
    "noise far above the bound": lambda c: c + 0.1 * seeded(c.shape),
    "noise just above the bound": lambda c: c + 1e-5 * seeded(c.shape),
    "rows in random order": lambda c: c[torch.randperm(len(c), generator=torch.Generator().manual_seed(2))],
    "magnitudes": lambda c: c.abs(),
    "two mistakes": lambda c: 2.0 * (c + 1.0),
    "one element off": lambda c: c * torch.where(torch.arange(c.numel()).view(c.shape) == 245, 1.01, 1.0),
    "a nonlinear function": lambda c: torch.tanh(c),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_mistake_that_no_variant_describes_is_not_named(name: str) -> None:
    found = run(changed(STRANGERS[name]), at=problem(**MATMUL))
    assert not found.agrees
    assert found.diagnosis == ""
    assert found.error_map.startswith("2x2 ")


def without_last_keys(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
    return a[:, :-16] @ b[:-16]


NAMED: dict[str, tuple[Callable[..., Any], str]] = {
    "a tail": (without_last_keys, "as if the last 16 of K were left out (fits 100%)"),
    "zeros": (changed(lambda c: torch.cat((torch.zeros_like(c[:16]), c[16:]))), "as if [0:16, 0:48] was left 0"),
    "a shift": (changed(lambda c: c.roll(1, 0)), "as if the result was shifted by 1 row (fits 100%)"),
    "a factor": (changed(lambda c: c / 3), "as if the result was multiplied by 0.333333 (fits 100%)"),
    "digits": (
        lambda a, b, *, precision: (a.half() @ b.half()).float(),
        "as if factors and the result were rounded to float16 (fits",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_usual_mistake_is_named(name: str) -> None:
    function, text = NAMED[name]
    assert run(function, at=problem(**MATMUL)).diagnosis.startswith(text)


def test_a_mistake_in_one_tile_is_named_with_its_place() -> None:
    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        c = a @ b
        c[16:32, 16:32] = a[16:32, :32] @ b[:32, 16:32]
        return c

    found = run(matmul, at=problem(**MATMUL))
    assert found.diagnosis == "as if, in [16:32, 16:32], the last 32 of K were left out (fits 100%)"
    rows = found.error_map.removeprefix("2x2 ").split("/")
    assert rows == ["." * 24] * 8 + ["." * 8 + "#" * 8 + "." * 8] * 8 + ["." * 24] * 8


def test_a_mistake_in_one_band_of_a_large_result_is_named_with_its_place() -> None:
    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        c = a @ b
        c[512:768] = a[512:768, :-8] @ b[:-8]
        return c

    found = run(matmul, at=problem("matmul", (1024, 256, 40)))
    assert found.diagnosis == "as if, in [512:768, 0:256], the last 8 of K were left out (fits 100%)"


def test_digits_that_no_variant_has_are_named() -> None:
    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        c = sum((a[:, k : k + 5].half() @ b[k : k + 5].half() for k in range(0, a.shape[1], 5)), torch.zeros(()).half())
        return c.float()

    text = "as if it was computed in float16: the result has no more digits"
    assert run(matmul, at=problem(**MATMUL)).diagnosis == text


def test_a_mistake_of_the_second_call_is_named() -> None:
    kept: list[torch.Tensor] = []

    def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        kept.append(b.clone())
        return a + kept[0]

    assert run(vector_add).diagnosis == "as if argument 2 was of an earlier call (fits 100%)"


def test_nan_of_the_inputs_is_not_taken_for_unwritten_memory() -> None:
    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, sm_scale: float | None = None
    ) -> torch.Tensor:
        k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
        hidden = torch.ones(10, 19, dtype=torch.bool).triu(10)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
        return torch.softmax(scores, dim=-1) @ v

    found = run(attention, at=problem("attention", (3, 2, 1, 10, 19, 64), inputs="nan", causal=True))
    assert found.diagnosis == "as if 0 times NaN let a hidden key through (fits 100%)"


def test_a_mistake_in_a_telling_case_is_named() -> None:
    odd = {"odd": problem("matmul", (32, 32, 67))}

    def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        even = a.shape[1] // 2 * 2
        return a[:, :even] @ b[:even]

    found = probe(lambda case: matmul, TORCH, odd)
    assert found.diagnosis.text == "as if the last of K was left out (fits 100%)"
    assert set(found.diagnosis.error_map.partition(" ")[2]) <= {"#", "9", "/"}


def test_variants_that_are_as_close_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem()
    output = given.draws[0][0] * 2

    def two(inputs: tuple[torch.Tensor, ...], case: Any, part: Any) -> Any:
        value = inputs[0][part].double() * 2
        for name in ("a was used instead of b", "a was doubled"):
            yield Variant(name, value, value.abs() * 1e-7)

    monkeypatch.setattr(variants, "find", lambda operation: two)
    found = diagnose(output, 0, given)
    assert found.text == "as if a was used instead of b or a was doubled (fits 100%)"


def test_a_fault_of_the_diagnosis_leaves_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("no such head")

    monkeypatch.setattr(variants, "find", lambda operation: broken)
    found = run(without_last_keys, at=problem(**MATMUL))
    assert not found.agrees
    assert found.reason.startswith("value: ")
    assert found.diagnosis == "the diagnosis failed: ValueError: no such head"


def test_no_variant_is_computed_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "BUDGET_S", -1.0)
    assert run(without_last_keys, at=problem(**MATMUL)).diagnosis == ""


def test_of_a_large_result_a_part_is_compared_around_the_largest_error() -> None:
    given = problem("vector_add", (300_000,))
    output = given.draws[0][0] + given.draws[0][1]
    output[250_000] += 1.0
    found = survey(output, given.truth(0), "float32", 1000, None)
    assert found is not None
    assert found.part.part == (slice(249_500, 250_500),)
    assert (found.wrong, found.begins, found.ends) == (1, (250_000,), (250_001,))
    assert survey(given.draws[0][0] + given.draws[0][1], given.truth(0), "float32", 1000, None) is None


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        pytest.param("attention_grad", (1, 4, 2, 40, 40, 64), marks=pytest.mark.thorough),
        ("lstm", (4, 3, 8, 24)),
        ("linear_sigmoid_grad", (40, 48, 70)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.thorough)])
def test_noise_in_half_of_several_results_is_not_named(operation: str, shape: tuple[int, ...], dtype: str) -> None:
    given = problem(operation, shape, dtype)
    right = import_module(f"wrong_kernels.torch_{operation}").make("")(*given.draws[0])
    output = torch.cat([each.flatten() for each in right])
    half = output[: len(output) // 2]
    half += 0.05 * seeded(half.shape)
    assert diagnose(output, 0, given).text == ""


@pytest.mark.parametrize(
    ("operation", "shape", "mistake", "said"),
    [
        pytest.param(
            *("attention_grad", (2, 4, 2, 130, 200, 64), "gradients_of_k_not_scaled", "dk was not scaled"),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *("attention_grad", (2, 4, 2, 130, 200, 64), "gradients_of_q_not_scaled", "dq was not scaled"),
            marks=pytest.mark.thorough,
        ),
        ("lstm", (12, 16, 40, 160), "output_gate_left_out", "the output gate was left out"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_may_lie_in_any_of_several_results(
    operation: str, shape: tuple[int, ...], mistake: str, said: str
) -> None:
    given = problem(operation, shape)
    make = import_module(f"wrong_kernels.torch_{operation}").make
    output = torch.cat([each.flatten() for each in make(mistake)(*given.draws[0])])
    found = survey(output, given.truth(0), "float32", 2**23 * len(output) // given.op.flops(given.case), None)
    assert found is not None
    assert found.part.output.numel() < len(output), "the whole result is compared"
    assert said in diagnose(output, 0, given).text


@pytest.mark.parametrize(
    ("operation", "shape", "wrong"),
    [
        ("matmul", (256, 192, 256), lambda a, b, *, precision: a[:, :-32] @ b[:-32]),
        pytest.param(
            *("attention", (1, 2, 1, 300, 300, 64), lambda q, k, v, **_: v[:, :, :1].expand(q.shape).contiguous()),
            marks=pytest.mark.thorough,
        ),
        pytest.param(*("layer_norm", (64, 4096), lambda x, w, b, *, eps: x.clone()), marks=pytest.mark.thorough),
        pytest.param(
            "attention_grad",
            (1, 2, 1, 300, 300, 64),
            lambda q, k, v, do, **_: torch.cat([x.view(-1) for x in (q, k, v)]),
            marks=pytest.mark.thorough,
        ),
        ("lstm", (64, 1, 128, 256), lambda x, *_: torch.ones(66 * 256)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_cost_of_a_diagnosis_is_bounded(
    monkeypatch: pytest.MonkeyPatch, operation: str, shape: tuple[int, ...], wrong: Callable[..., Any]
) -> None:
    from time import thread_time

    monkeypatch.setattr(diagnosis, "BUDGET_S", 1.0)
    given = problem(operation, shape)
    output = wrong(*given.draws[0], **given.op.arguments(given.case))
    list(given.truth(0))

    def within_its_budget(_: int) -> None:
        begin = thread_time()
        diagnose(output, 0, given)
        assert thread_time() - begin < 3 * diagnosis.BUDGET_S

    passes_once(within_its_budget, range(3))


def test_a_rounded_carry_is_not_taken_for_a_conversion_to_float16() -> None:
    """float16 has all digits of bfloat16 in its normal range, so a conversion changes nothing there."""

    def cumsum(x: torch.Tensor) -> torch.Tensor:
        blocks = []
        carry = torch.zeros(len(x), 1)
        for block in x.float().split(1024, dim=1):
            sums = block.cumsum(1) + carry
            carry = sums[:, -1:].bfloat16().float()
            blocks.append(sums)
        return torch.cat(blocks, 1).bfloat16()

    found = run(cumsum, at=problem("cumsum", (9, 2056), "bfloat16", inputs="positive"))
    assert not found.agrees
    assert "float16" not in found.diagnosis.replace("bfloat16", "")


def test_a_conversion_to_float16_is_named() -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a + b).half().bfloat16()

    found = run(add, at=problem("vector_add", (1000,), "bfloat16", inputs="largest"))
    assert found.diagnosis.startswith("as if the result was converted to float16")
