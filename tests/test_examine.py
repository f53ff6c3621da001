"""The checked calls: what each of them shows, at results that are empty, NaN, views, or no arrays at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from suite import frameworks, ops
from suite.checking.checked_call import Examination, Problem, examine, same_bits
from suite.frameworks import _poison
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.worker import protocol
from suite.worker.server import Worker

CPU = torch.device("cpu")
TORCH = frameworks.get("torch")
JAX = frameworks.get("jax")
NUMPY = frameworks.get("numpy")


def problem(
    operation: str = "vector_add", shape: tuple[int, ...] = (1000,), dtype: str = "float32", **kw: Any
) -> Problem:
    return Problem(ops.get(operation).case(shape, dtype, **kw), 0, CPU)


def look(function: Callable[..., Any], adapter: Adapter = TORCH, at: Problem | None = None, **kw: Any) -> Examination:
    return examine(lambda: function, adapter, at or problem(), **kw)


def kind(found: Examination) -> str:
    assert not found.agrees
    return found.reason.split(":")[0]


def test_a_right_kernel_is_called_three_times_on_two_draws_in_the_same_memory() -> None:
    at = problem()
    seen: list[tuple[int, float]] = []
    phases: list[str] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append((a.data_ptr(), float(a[0])))
        return a + b

    found = look(add, at=at, announce=phases.append)
    assert found.agrees
    assert (found.reason, found.deterministic) == ("", "yes")
    assert found.error_ratio < 0.7
    assert found.first_call_s > 0
    addresses, values = zip(*seen, strict=True)
    assert len(set(addresses)) == 1
    assert values == tuple(float(at.draws[draw][0][0]) for draw in (0, 1, 0))
    assert phases[0] == protocol.FIRST_CALL
    assert phases == ["first call", "second call", "judging", "third call", "judging"]


def test_inputs_and_truths_are_made_once_for_all_implementations() -> None:
    at = problem()
    assert look(torch.add, at=at).agrees
    kept = at.truth(0), at.truth(1)
    assert look(torch.add, at=at).agrees
    assert (at.truth(0), at.truth(1)) == kept
    assert at.truth(0) is kept[0]


@pytest.mark.parametrize("adapter", [TORCH, JAX, NUMPY], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize(
    ("operation", "shape"),
    [("vector_add", (0,)), ("matrix_add", (0, 5)), ("matrix_add", (5, 0)), ("sigmoid", (0,)), ("matmul", (0, 4, 3))],
)
def test_an_empty_result_is_right(adapter: Adapter, operation: str, shape: tuple[int, ...]) -> None:
    load = next(i for i in builtin.implementations(operation) if i.name == adapter.name).load
    found = look(getattr(load(), operation), adapter, problem(operation, shape))
    assert found.agrees, found.reason
    assert found.deterministic == "yes"


def test_an_empty_result_of_an_empty_input_shares_no_memory() -> None:
    assert look(lambda a, b: a, at=problem(shape=(0,))).agrees


def test_nan_equals_any_other_nan_and_a_zero_not_its_negative() -> None:
    quiet, other = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, -1))
    assert same_bits(quiet, other)
    assert same_bits(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(quiet, torch.tensor([1.0]))
    assert same_bits(torch.empty(0), torch.empty(0))


@pytest.mark.parametrize("adapter", [TORCH, JAX, NUMPY], ids=lambda adapter: adapter.name)
def test_nan_in_the_inputs_is_not_a_change_of_them(adapter: Adapter) -> None:
    found = look(lambda a, b: a + b, adapter, problem(shape=(1025,), inputs="nan"))
    assert found.agrees, found.reason
    assert found.deterministic == "yes"


class Pretender(torch.Tensor):
    """A tensor that says it is equal to everything."""


@pytest.mark.parametrize(
    ("result", "expected", "said"),
    [
        (lambda c: None, "type", "a NoneType, not a strided torch.Tensor"),
        (lambda c: (c,), "type", "a tuple"),
        (lambda c: c.numpy(), "type", "a ndarray"),
        (lambda c: c.as_subclass(Pretender), "type", "a Pretender"),
        (lambda c: c.to_sparse(), "type", "a Tensor"),
        (lambda c: c[:-1], "shape", "(999,), expected (1000,)"),
        (lambda c: c[None], "shape", "(1, 1000)"),
        (lambda c: c.double(), "dtype", "float64, expected float32"),
        (lambda c: c.bool(), "dtype", "bool"),
        (lambda c: c.to("meta"), "device", "on meta, expected cpu"),
        (lambda c: c[:1].expand(1000), "strides", "(0,)"),
        (lambda c: torch.stack([c, c], 1)[:, 0], "strides", "(2,)"),
    ],
)
def test_a_result_of_another_form_is_refused_without_being_looked_into(
    result: Callable[[torch.Tensor], Any], expected: str, said: str
) -> None:
    found = look(lambda a, b: result(a + b))
    assert kind(found) == expected
    assert said in found.reason
    assert found.error_ratio == math.inf
    assert found.deterministic == ""


@pytest.mark.parametrize(
    ("adapter", "result", "expected"),
    [
        (NUMPY, lambda c: c[::-1], "strides"),
        (NUMPY, lambda c: np.broadcast_to(c[:1], c.shape), "strides"),
        (NUMPY, lambda c: c.astype(">f4"), "dtype"),
        (NUMPY, lambda c: c.astype(object), "dtype"),
        (NUMPY, lambda c: c.astype(np.longdouble), "dtype"),
        (NUMPY, lambda c: np.matrix(c), "type"),
        (NUMPY, lambda c: torch.from_numpy(c), "type"),
        (NUMPY, lambda c: np.ma.masked_array(c), "type"),
        (JAX, lambda c: np.asarray(c), "type"),
        (JAX, lambda c: torch.from_dlpack(c), "type"),
        (JAX, lambda c: c > 0, "dtype"),
        (JAX, lambda c: c[:, None], "shape"),
    ],
)
def test_arrays_of_other_frameworks_too(adapter: Adapter, result: Callable[[Any], Any], expected: str) -> None:
    assert kind(look(lambda a, b: result(a + b), adapter)) == expected


def test_the_form_is_required_of_every_call() -> None:
    calls: list[int] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return (a + b).double() if len(calls) == 2 else a + b

    assert kind(look(add)) == "dtype"


def test_memory_that_is_handed_back_by_turns_is_seen() -> None:
    ring = [torch.empty(1000), torch.empty(1000)]

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ring.reverse()
        return torch.add(a, b, out=ring[0])

    assert kind(look(add)) == "same buffer"


def test_slices_of_one_large_allocation_are_not_the_same_memory() -> None:
    arena = iter(torch.empty(3, 1000))
    assert look(lambda a, b: torch.add(a, b, out=next(arena))).agrees


def test_a_first_result_that_the_second_call_overwrites_is_seen() -> None:
    last: list[torch.Tensor] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if last:
            last[0].zero_()
        last.append(a + b)
        return last[-1]

    found = look(add)
    assert kind(found) == "same buffer"
    assert "wrote over the result of the first" in found.reason


def test_a_result_remembered_by_the_address_of_its_inputs_is_an_old_one() -> None:
    kept: dict[int, torch.Tensor] = {}

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(a.data_ptr(), a + b).clone()

    found = look(add)
    assert kind(found) == "value"
    assert "the second call gave the first one's result" in found.reason


@pytest.mark.parametrize("inputs", ["normal", "strided", "offset", "broadcast"])
def test_a_write_to_an_input_is_seen_also_beside_its_elements(inputs: str) -> None:
    at = problem(shape=(1025,), inputs=inputs)
    assert look(lambda a, b: a + b, at=at).agrees

    def scribble(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = a + b
        memory = torch.empty(0).set_(b.untyped_storage())
        memory[-1] = 7.0
        return out

    found = look(scribble, at=at)
    assert kind(found) == "inputs changed"
    assert "argument 2" in found.reason
    assert look(lambda a, b: a + b, at=at).agrees, "the next implementation finds the inputs as they were"


@pytest.mark.parametrize("inputs", ["strided", "offset", "broadcast"])
def test_buffers_lie_in_memory_as_the_inputs_do(inputs: str) -> None:
    at = problem("matrix_add", (33, 65), inputs=inputs)
    for given, buffer in zip(at.draws[0], at.buffers, strict=True):
        assert buffer.stride() == given.stride()
        assert buffer.storage_offset() == given.storage_offset()
        assert buffer.data_ptr() % 16 == given.data_ptr() % 16
    at.present(1)
    assert all(map(torch.equal, at.buffers, at.draws[1]))
    assert at.changed(1) == []
    assert at.changed(0) == [0, 1]


def test_inputs_that_share_memory_share_it_in_the_buffers() -> None:
    at = problem()
    both = torch.arange(2000.0)
    at.draws = ((both[:1000], both[1000:]),) * 2
    from suite.checking.checked_call import _twins

    a, b = _twins(at.draws[0])
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != both.data_ptr()
    assert torch.equal(b, both[1000:])


def test_results_that_differ_from_call_to_call_are_told_and_refused_only_after_a_claim() -> None:
    order = torch.Generator().manual_seed(0)

    def product(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        k = torch.randperm(a.shape[1], generator=order)
        return a[:, k] @ b[k]

    at = problem("matmul", (32, 32, 256))
    found = look(product, at=at)
    assert found.agrees
    assert found.deterministic == "no"
    claimed = look(product, at=at, claims_determinism=True)
    assert kind(claimed) == "not deterministic"
    assert "DETERMINISTIC = True" in claimed.reason


def test_everything_that_is_wrong_is_told() -> None:
    found = look(lambda a, b: a.sub_(b))
    assert [part.split(":")[0] for part in found.reason.split("; ")][:2] == ["aliases input", "inputs changed"]
    assert "value: " in found.reason


def test_what_the_implementation_raises_passes_through() -> None:
    def refuse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("only on Tuesdays")

    with pytest.raises(NotImplementedError, match="Tuesdays"):
        look(refuse)


def test_torch_hands_out_nan_and_large_odd_integers() -> None:
    def allocate() -> list[torch.Tensor]:
        like = torch.zeros(3)
        floats = [torch.empty(3), torch.empty_like(like), torch.empty_strided((2, 2), (1, 2)), like.new_empty(3)]
        floats += [torch.empty_permuted((2, 3), (1, 0)), like.new_empty_strided((2,), (1,)), torch.Tensor(3)]
        floats += [torch.empty(3, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)]
        integers = [torch.empty(3, dtype=dtype) for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64)]
        assert all(bool(tensor.isnan().all()) for tensor in floats)
        assert all(int(tensor.min()) == torch.iinfo(tensor.dtype).max for tensor in integers)
        assert all(int(tensor.min()) % 2 for tensor in integers)
        assert bool(torch.empty(2, dtype=torch.bool).all())
        assert not bool(torch.zeros(3).any())
        return floats

    assert TORCH.poisoned(allocate, (3,), "float32", CPU)


def test_numpy_hands_out_nan() -> None:
    def allocate() -> Any:
        return np.empty(3), np.empty_like(np.zeros((2, 2), np.float16)), np.empty(3, np.int32), np.zeros(2)

    floats, half, integers, zeros = NUMPY.poisoned(allocate, (3,), "float32", CPU)
    assert np.isnan(floats).all()
    assert np.isnan(half).all()
    assert (integers == np.iinfo(np.int32).max).all()
    assert not zeros.any()
    assert np.empty.__module__ == "numpy", "put back"


@pytest.mark.parametrize("adapter", [TORCH, NUMPY], ids=lambda adapter: adapter.name)
def test_an_element_that_is_left_out_is_not_finite(adapter: Adapter) -> None:
    empty_like: Callable[[Any], Any] = torch.empty_like if adapter is TORCH else lambda a: np.empty_like(a)

    def add(a: Any, b: Any) -> Any:
        out = empty_like(a)
        out[:-1] = (a + b)[:-1]
        return out

    found = look(add, adapter)
    assert kind(found) == "not finite"
    assert "at [999] got nan" in found.reason


def test_compiled_functions_are_compiled_under_poison() -> None:
    """A function that torch would run op by op when it is checked would be another one when it is timed."""
    compiled: list[int] = []

    def adapter(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(1)
        return module.forward

    add = torch.compile(torch.add, adapter=adapter)
    assert look(add).agrees
    assert compiled


def test_a_class_that_torch_cannot_make_under_poison_is_made_without() -> None:
    from torch.nn.attention.bias import causal_lower_right

    assert TORCH.poisoned(lambda: causal_lower_right(3, 5), (3,), "float32", CPU) is not None
    with pytest.raises(RuntimeError, match="something else"):
        TORCH.poisoned(lambda: (_ for _ in ()).throw(RuntimeError("something else")), (3,), "float32", CPU)


def test_poison_ends_with_the_call() -> None:
    with _poison.Poison():
        pass
    assert torch.zeros(2).sum() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_the_worker_answers_with_the_columns_of_a_row() -> None:
    worker = Worker(Device("cpu", name="CPU"), lambda document: None)
    case = ops.get("vector_add").case((1000,))
    answer = worker.check(case, "torch", 0)
    assert answer["status"] == "ok"
    assert answer["deterministic"] == "yes"
    assert answer["error_ratio"] < 0.7
    held = worker.problem
    worker.check(case, "numpy", 0)
    assert worker.problem is held


def test_a_claim_is_read_without_importing(tmp_path: Any) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("raise SystemExit\nDETERMINISTIC = True\n", encoding="utf-8")
    assert builtin._constants(file)["DETERMINISTIC"] is True
    claims = {i.name: i.deterministic for name in ops.names() for i in builtin.implementations(name)}
    assert any(claims.values())
    assert not claims["torch"], "a vendor's library makes no promise of ours"


@pytest.mark.parametrize("name", ops.names())
def test_the_memory_of_a_checked_run_counts_both_draws_and_the_copies(name: str) -> None:
    op = ops.get(name)
    case = op.default_cases("cuda")[0]
    output = op.output_bytes(case)
    inputs = sum(math.prod(shape) for shape in op.operands(case)) * case.element_bytes
    assert op.memory_bytes(case) == 3 * inputs + 4 * output + op.workspace_bytes(case)


@pytest.mark.gpu
@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_that_does_not_wait_for_the_inputs_is_wrong(waits: bool) -> None:
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

    assert look(add, at=at).agrees is waits


@pytest.mark.gpu
def test_a_result_that_is_not_finished_when_the_call_returns_is_wrong() -> None:
    at = Problem(ops.get("vector_add").case((100_000,)), 0, torch.device("cuda:0"))

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        own = torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        out = torch.empty_like(a)
        with torch.cuda.stream(own):
            torch.cuda._sleep(10_000_000)
            torch.add(a, b, out=out)
        return out

    assert kind(look(add, at=at)) == "unfinished"
