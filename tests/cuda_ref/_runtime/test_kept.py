"""Calls that are repeated without their launchers: what is kept, for which calls, and for how long."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cuda_ref import build
from cuda_ref._runtime import kept as _kept
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.operator import schema
from suite import ops
from suite.implementations import builtin


class Launcher:
    """out = x + y of a few bytes, by a launch that can be repeated. Counts the calls that run as they are written."""

    def __init__(self) -> None:
        self.written, self.error = 0, 0
        self.add = kept(self._add)

    def _add(self, x: Tensor, y: Tensor, *, swapped: bool = False) -> Tensor:
        self.written += 1
        if x.is_neg() or (y.requires_grad and torch.is_grad_enabled()):
            raise NotImplementedError
        out = torch.empty(x.shape, dtype=x.dtype)
        first, second = (y, x) if swapped else (x, y)
        self.launch(first, second, out)
        return out

    def launch(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        def run(addresses: Sequence[int], stream: int) -> int:
            a, b = ((ctypes.c_int8 * x.numel()).from_address(each) for each in addresses[:2])
            result = (ctypes.c_int8 * x.numel()).from_address(addresses[2])
            for i, (one, other) in enumerate(zip(a, b, strict=True)):
                result[i] = one - other
            return self.error

        def repeatable(place: Callable[[Tensor], int]) -> _kept.Issue:
            places = [place(each) for each in (x, y, out)]
            return lambda addresses, stream: run([addresses[each] for each in places], stream)

        run([each.data_ptr() for each in (x, y, out)], 0)
        if (recording := _kept.recording()) is not None:
            recording.launches.append(repeatable)


@pytest.fixture
def launcher() -> Launcher:
    _kept.forget()
    return Launcher()


def pair(count: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 50, (count,), dtype=torch.int8), torch.randint(0, 50, (count,), dtype=torch.int8)


def call(launcher: Launcher, count: int = 4, **options: Any) -> None:
    x, y = pair(count)
    assert torch.equal(launcher.add(x, y, **options), y - x if options.get("swapped") else x - y)


def test_the_third_call_of_a_kind_is_repeated_with_its_own_values(launcher: Launcher) -> None:
    for _ in range(5):
        call(launcher)
    assert launcher.written == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: (x[:2], y[:2]),
        lambda x, y: (x.repeat(2)[::2], y.repeat(2)[::2]),
        lambda x, y: (torch.cat((x, x))[1:5], y),
        lambda x, y: (x.view(2, 2), y.view(2, 2)),
        lambda x, y: (x.view(torch.uint8), y.view(torch.uint8)),
    ],
    ids=["shape", "strides", "alignment", "rank", "dtype"],
)
def test_another_kind_of_tensors_has_another_plan(launcher: Launcher, change: Callable[..., Any]) -> None:
    for _ in range(3):
        call(launcher)
    for _ in range(2):
        launcher.add(*change(*pair()))
    assert launcher.written == 4


def test_options_are_part_of_the_kind(launcher: Launcher) -> None:
    for _ in range(4):
        call(launcher)
        call(launcher, swapped=True)
    assert launcher.written == 4


def test_what_the_function_refuses_stays_refused(launcher: Launcher) -> None:
    for _ in range(3):
        launcher.add(torch.ones(2), torch.ones(2))
    negated = torch.ones(2, dtype=torch.complex64).conj().imag
    wanted = torch.ones(2, requires_grad=True)
    for _ in range(3):
        with pytest.raises(NotImplementedError):
            launcher.add(negated, torch.ones(2))
        with pytest.raises(NotImplementedError):
            launcher.add(torch.ones(2), wanted)
    with torch.no_grad():
        launcher.add(torch.ones(2), wanted)


def test_one_tensor_in_two_places_does_not_make_a_plan(launcher: Launcher) -> None:
    x, _ = pair()
    for _ in range(4):
        assert launcher.add(x, x).count_nonzero() == 0
    assert launcher.written == 4
    for _ in range(3):
        call(launcher)
    assert launcher.written == 5
    assert launcher.add(x, x).count_nonzero() == 0


def record_a_launch() -> None:
    if (recording := _kept.recording()) is not None:
        recording.launches.append(lambda place: lambda addresses, stream: 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: torch.zeros_like(x),
        lambda x: x,
        lambda x: torch.empty(3, 2).t(),
        lambda x: torch.empty(3, device="meta"),
        lambda x: torch.empty(0),
    ],
    ids=["computes", "fills", "its input", "a view", "another device", "nothing"],
)
def test_other_calls_are_never_kept(function: Callable[..., Any]) -> None:
    _kept.forget()
    counted: list[int] = []

    @kept
    def launch(x: Tensor) -> Tensor:
        counted.append(1)
        record_a_launch()
        return function(x)

    for _ in range(4):
        launch(torch.ones(3))
    assert len(counted) == 4


def test_a_call_that_launches_elsewhere_is_never_kept() -> None:
    _kept.forget()
    counted: list[int] = []
    launch = kept(lambda x: (counted.append(1), torch.empty(3))[1])
    for _ in range(4):
        launch(torch.ones(3))
    assert len(counted) == 4


def test_a_tensor_by_name_is_passed_on_and_not_held(launcher: Launcher) -> None:
    x, y = pair()
    for _ in range(4):
        assert torch.equal(launcher.add(x=x, y=y), x - y)
    assert launcher.written == 4
    assert not _kept._thread.recordable


def test_what_is_no_tensor_is_left_to_the_function() -> None:
    function = kept(lambda x, y=None: "seen")
    assert [function(3), function("3", None), function(torch.ones(1), y=[])] == ["seen"] * 3


def test_a_launch_that_fails_is_made_again_as_it_is_written(launcher: Launcher) -> None:
    for _ in range(3):
        call(launcher)
    launcher.error = 1
    call(launcher)
    assert launcher.written == 3


def test_calls_that_alternate_have_their_own_results(launcher: Launcher) -> None:
    for _ in range(3):
        call(launcher)
        call(launcher, 5)
    for _ in range(10):
        call(launcher)
        call(launcher, 5)
        x, y = pair()
        assert torch.equal(launcher.add(torch.cat((x, x))[1:5], y), torch.cat((x, x))[1:5] - y)
        with torch.no_grad():
            call(launcher)
    assert launcher.written == 2 * 3


def test_a_matcher_knows_a_kind() -> None:
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    matches = _kept.matcher((x, y))
    assert matches(torch.randn(8, 16), torch.randn(8, 16))
    others = [
        torch.randn(8, 15),
        torch.randn(16, 8).t(),
        x.half(),
        torch._neg_view(x.clone()),
        x.clone().requires_grad_(),
    ]
    others += [torch.empty(8, 16, device="meta"), torch.randn(128), torch.nn.Parameter(x, requires_grad=False)]
    assert not any(matches(y, other) for other in others)


def test_a_function_that_calls_a_kept_one_records_its_launches(launcher: Launcher) -> None:
    twice = kept(lambda x, y: launcher.add(launcher.add(x, y), y))
    for _ in range(3):
        call(launcher)
    for _ in range(4):
        x, y = pair()
        assert torch.equal(twice(x, y), x - y - y)
    assert launcher.written == 2 + 2  # two of them in the recording


def test_a_launch_may_read_and_write_parts_of_what_is_allocated(launcher: Launcher) -> None:
    @kept
    def halves(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty(2 * len(x), dtype=x.dtype)
        launcher.launch(x, y, out[: len(x)])
        launcher.launch(out[: len(x)], y, out[len(x) :])
        return out.view(2, len(x))

    for _ in range(4):
        x, y = pair()
        assert torch.equal(halves(x, y), torch.stack((x - y, x - y - y)))
    assert _kept._thread.plans, "the call is kept"


def test_several_results() -> None:
    _kept.forget()
    counted: list[int] = []

    @kept
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        counted.append(1)
        record_a_launch()
        return torch.empty(2), torch.empty(3, dtype=torch.int8)

    for _ in range(4):
        first, second = both(torch.ones(1))
        assert (first.shape, first.dtype, second.shape, second.dtype) == ((2,), torch.float32, (3,), torch.int8)
    assert len(counted) == 2


def test_threads_have_plans_of_their_own(launcher: Launcher) -> None:
    for _ in range(3):
        call(launcher)
    threads = [threading.Thread(target=lambda: [call(launcher) for _ in range(50)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert launcher.written == 2 + 3 * 2


def test_the_oldest_plans_go_first(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kept, "LIMIT", 2)
    for count in (3, 4, 5):
        for _ in range(2):
            call(launcher, count)
    before = launcher.written
    call(launcher, 5)
    call(launcher, 4)
    assert (launcher.written, len(_kept._thread.plans), len(_kept._thread.recordable)) == (before, 2, 2)
    call(launcher, 3)
    assert launcher.written == before + 1


def test_forgetting(launcher: Launcher) -> None:
    for _ in range(3):
        call(launcher)
    _kept.forget()
    call(launcher)
    assert launcher.written == 3


def test_modes_see_the_allocations_of_a_repeated_call(launcher: Launcher) -> None:
    class Seen(TorchDispatchMode):
        names: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func.overloadpacket))
            return func(*args, **(kwargs or {}))

    for _ in range(3):
        call(launcher)
    with Seen() as seen:
        launcher.add(*pair())
    assert "aten.empty_like" in seen.names


def test_an_emulated_kernel_is_repeated() -> None:
    from cuda_ref.vector_add import vector_add

    for _ in range(4):
        a, b = torch.randn(100), torch.randn(100)
        assert torch.equal(vector_add(a, b), a + b)
    assert any(kind[0] is vector_add.__wrapped__ for kind in _kept._thread.plans)
    a = torch.randn(100)
    build.launch("vector_add/vector_add", "vector_add", a.device, a, b, out := torch.empty(100), 100, 1, 1, 0)
    assert torch.equal(out, a + b)


def test_a_compiled_function_has_one_graph() -> None:
    from cuda_ref.rms_norm import rms_norm
    from cuda_ref.sum import sum as total

    function = torch.compile(
        lambda x, w: total(rms_norm(x, w, eps=1e-5) * 2, axis=0), fullgraph=True, backend="aot_eager"
    )
    x, w = torch.randn(3, 8), torch.randn(8)
    torch.testing.assert_close(function(x, w), (torch.nn.functional.rms_norm(x, (8,), w, 1e-5) * 2).sum(0))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("vector_add", "(Tensor a, Tensor b) -> Tensor"),
        ("layer_norm", "(Tensor x, Tensor weight, Tensor bias, *, float eps) -> Tensor"),
        ("sum", "(Tensor x, *, int? axis=None) -> Tensor"),
        (
            "matmul.wgmma",
            '(Tensor a, Tensor b, Tensor? scale_a=None, Tensor? scale_b=None, *, str precision="ieee") -> Tensor',
        ),
        (
            "attention_grad",
            "(Tensor q, Tensor k, Tensor v, Tensor do, Tensor? scale_q=None, Tensor? scale_k=None, "
            "Tensor? scale_v=None, Tensor? scale_do=None, "
            "*, bool causal=False, float? sm_scale=None, int? window=None) "
            "-> (Tensor, Tensor, Tensor)",
        ),
        (
            "attention",
            "(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? sm_scale=None, int? window=None) -> Tensor",
        ),
    ],
    ids=lambda text: text.split()[0],
)
def test_the_operators_have_the_signatures_of_the_functions(file: str, expected: str) -> None:
    module = import_module(f"cuda_ref.{file}")
    assert schema(getattr(module, file.partition(".")[0])) == expected


def test_results_of_operators_have_shapes_and_dtypes_without_a_call() -> None:
    import_module("cuda_ref.matmul.wgmma")
    a, b = torch.empty(3, 16, device="meta", dtype=torch.float8_e4m3fn), torch.empty(16, 5, device="meta")
    out = torch.ops.cuda_ref.matmul_wgmma(a, b)
    assert (out.shape, out.dtype) == ((3, 5), torch.bfloat16)


@pytest.mark.parametrize("name", ops.alone())
def test_results_of_the_operators_of_every_line_are_those_of_the_operation(name: str) -> None:
    """In Triton's interpreter its lines are no operators."""
    op = ops.get(name)
    case = op.default_cases("cpu")[0]
    for options in op.option_combinations(
        case.dtype, {each.name: each.values for each in op.options if not each.beyond}
    ):
        case = op.case(case.shape, case.dtype, case.precision, **options)
        inputs = [x.to("meta") for x in op.make_inputs(case, 0, torch.device("cpu"))]
        several = len(op.outputs) > 1
        shapes = op.output_shapes(case) if several else [op.output_shape(case)]
        dtypes = op.output_dtypes(case) if several else [op.output_dtype(case)]
        ours = [e for e in builtin.implementations(name) if e.framework in ("cuda", "triton") and e.peer is None]
        for each in ours:
            import_module(each.module)
            folder, _, file = each.module.partition(".")
            operator = getattr(getattr(torch.ops, folder), file.replace(".", "_"), None)
            if operator is not None:
                found = operator(*inputs, **op.arguments(case))
                found = found if several else [found]
                assert [tuple(x.shape) for x in found] == [tuple(shape) for shape in shapes], each.module
                assert [x.dtype for x in found] == [getattr(torch, dtype) for dtype in dtypes], each.module
