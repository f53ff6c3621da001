"""The checked call: what each of the three calls shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from checked_calls import JAX, NUMPY, TORCH, kind, problem, run

from suite import ops
from suite.checking.calls import LocalCaller
from suite.checking.check import check_briefly
from suite.checking.memory import elements_between_bands
from suite.checking.problem import Problem
from suite.checking.repeats import Duration
from suite.core.phases import Phase
from suite.frameworks.base import Adapter
from suite.implementations import builtin


def test_a_right_kernel_is_called_three_times_on_two_draws_in_the_same_memory() -> None:
    at = problem()
    seen: list[tuple[int, float]] = []
    phases: list[Phase] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append((a.data_ptr(), float(a[0])))
        return a + b

    found = run(add, at=at, on_phase=phases.append)
    assert found.agrees
    assert (found.reason, found.deterministic) == ("", "yes")
    assert found.error_ratio < 0.7
    assert found.first_call_s > 0
    addresses, values = zip(*seen, strict=True)
    assert len(set(addresses)) == 1
    assert values == tuple(float(at.draws[draw][0][0]) for draw in (0, 1, 0))
    assert phases == [Phase.FIRST_CALL, Phase.SECOND_CALL, Phase.JUDGING, Phase.THIRD_CALL, Phase.JUDGING]


def test_inputs_and_truths_are_made_once_for_all_implementations() -> None:
    at = problem()
    assert run(torch.add, at=at).agrees
    kept = at.truth(0), at.truth(1)
    assert run(torch.add, at=at).agrees
    assert (at.truth(0), at.truth(1)) == kept
    assert at.truth(0) is kept[0]


@pytest.mark.parametrize("adapter", [TORCH, JAX, NUMPY], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize(
    ("operation", "shape"),
    [("vector_add", (0,)), ("matrix_add", (0, 5)), ("matrix_add", (5, 0)), ("sigmoid", (0,)), ("matmul", (0, 4, 3))],
)
def test_an_empty_result_is_right(adapter: Adapter, operation: str, shape: tuple[int, ...]) -> None:
    load = next(i for i in builtin.implementations(operation) if i.name == adapter.name).load
    found = run(getattr(load(), operation), adapter, problem(operation, shape))
    assert found.agrees, found.reason
    assert found.deterministic == "yes"


def test_an_empty_result_of_an_empty_input_shares_no_memory() -> None:
    assert run(lambda a, b: a, at=problem(shape=(0,))).agrees


@pytest.mark.parametrize("adapter", [TORCH, JAX, NUMPY], ids=lambda adapter: adapter.name)
def test_nan_in_the_inputs_is_no_write_to_them(adapter: Adapter) -> None:
    found = run(lambda a, b: a + b, adapter, problem(shape=(1025,), inputs="nan"))
    assert found.agrees, found.reason
    assert found.deterministic == "yes"


def test_two_buffers_returned_in_turn_are_refused() -> None:
    ring = [torch.empty(1000), torch.empty(1000)]

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ring.reverse()
        return torch.add(a, b, out=ring[0])

    assert kind(run(add)) == "same buffer"


def test_slices_of_one_allocation_are_different_buffers() -> None:
    arena = iter(torch.empty(3, 1000))
    assert run(lambda a, b: torch.add(a, b, out=next(arena))).agrees


def test_a_first_result_that_the_second_call_overwrites_is_refused() -> None:
    last: list[torch.Tensor] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if last:
            last[0].zero_()
        last.append(a + b)
        return last[-1]

    found = run(add)
    assert kind(found) == "result changed"
    assert "wrote to the result of the first call" in found.reason


@pytest.mark.parametrize("when", [Phase.SECOND_CALL, Phase.THIRD_CALL])
def test_a_result_that_a_thread_writes_to_between_calls_is_refused_for_that(when: Phase) -> None:
    """The thread writes to all results so far when the harness says that the next call begins: it has copied them."""
    results: list[torch.Tensor] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        results.append(a + b)
        return results[-1]

    def begin(phase: Phase) -> None:
        if phase is when:
            thread.submit(lambda: [result.zero_() for result in results]).result()

    with ThreadPoolExecutor(1) as thread:
        found = run(add, repeats=Duration(0.0, least_s=60.0), on_phase=begin)
    assert kind(found) == "result changed"
    assert "thread" in found.reason
    assert "same buffer" not in found.reason


def test_several_buffers_returned_in_turn_are_refused_by_the_repeated_calls() -> None:
    ring = itertools.cycle([torch.empty(1000) for _ in range(40)])

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.add(a, b, out=next(ring))

    assert run(add).agrees, "three calls have buffers of their own"
    assert kind(run(add, repeats=Duration(60.0))) == "same buffer"
    at = problem()
    reason, _ = check_briefly(LocalCaller(lambda: add, TORCH, at), at, Duration(60.0))
    assert reason.startswith("same buffer")


def test_a_result_cached_by_input_address_is_refused_as_stale() -> None:
    kept: dict[int, torch.Tensor] = {}

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(a.data_ptr(), a + b).clone()

    found = run(add)
    assert kind(found) == "value"
    assert "the second call gave the first one's result" in found.reason


def test_a_wrong_number_with_few_bits_is_not_called_stale() -> None:
    """Sums of 16 bits are often equal for two draws, as those of a kernel that rounds its partial sums to 16 bits."""
    at = problem("sum", (64, 520), "float16", inputs="positive")
    first, second = (float(draw[0].double().sum()) for draw in at.draws)
    assert abs(first - second) < 320, "ten units in the last place"
    found = run(lambda x, axis=None: torch.tensor(first).half(), at=at)
    assert kind(found) == "value"
    assert "stale" not in found.reason
    assert "in the second call, with other inputs" in found.reason


@pytest.mark.parametrize("inputs", ["normal", "strided", "offset", "broadcast"])
def test_a_write_to_an_input_is_refused_also_beside_its_elements(inputs: str) -> None:
    at = problem(shape=(1025,), inputs=inputs)
    assert run(lambda a, b: a + b, at=at).agrees

    def scribble(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = a + b
        elements_between_bands(b)[-1] = 7.0
        return out

    found = run(scribble, at=at)
    assert kind(found) == "inputs changed"
    assert "argument 2" in found.reason
    assert run(lambda a, b: a + b, at=at).agrees, "the next implementation finds the inputs as they were"


def test_a_non_deterministic_result_is_refused_only_where_the_file_claims_determinism() -> None:
    order = torch.Generator().manual_seed(0)

    def product(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        k = torch.randperm(a.shape[1], generator=order)
        return a[:, k] @ b[k]

    at = problem("matmul", (32, 32, 256))
    found = run(product, at=at)
    assert found.agrees
    assert found.deterministic == "no"
    claimed = run(product, at=at, claims_determinism=True)
    assert kind(claimed) == "not deterministic"
    assert "DETERMINISTIC = True" in claimed.reason


def test_the_reason_lists_all_that_is_wrong() -> None:
    found = run(lambda a, b: a.sub_(b))
    assert [part.split(":")[0] for part in found.reason.split("; ")][:2] == ["aliases input", "inputs changed"]
    assert "value: " in found.reason


def test_what_the_implementation_raises_passes_through() -> None:
    def refuse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("only on Tuesdays")

    with pytest.raises(NotImplementedError, match="Tuesdays"):
        run(refuse)


def test_a_compiled_function_is_compiled_in_the_checked_call() -> None:
    """The check must call the compiled function that is timed, not the same function run operator by operator."""
    compiled: list[int] = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(1)
        return module.forward

    add = torch.compile(torch.add, backend=backend)
    assert run(add).agrees
    assert compiled


@pytest.mark.gpu
@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_that_does_not_wait_for_the_inputs_is_refused(waits: bool) -> None:
    at = Problem(ops.get("vector_add").case((100_000,)), 0, torch.device("cuda:0"))

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        caller, own = torch.cuda.current_stream(), torch.cuda.Stream()
        if waits:
            own.wait_stream(caller)
        with torch.cuda.stream(own):
            out = a + b
        if waits:
            caller.wait_stream(own)
        return out

    assert run(add, at=at).agrees is waits


@pytest.mark.gpu
def test_a_result_that_is_unfinished_when_the_call_returns_is_refused() -> None:
    at = Problem(ops.get("vector_add").case((100_000,)), 0, torch.device("cuda:0"))

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        own = torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        out = torch.empty_like(a)
        with torch.cuda.stream(own):
            torch.cuda._sleep(10_000_000)
            torch.add(a, b, out=out)
        return out

    assert kind(run(add, at=at)) == "unfinished"
