"""The suite's own launchers on a GPU: several threads, streams and devices, CUDA graph captures, torch.compile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from suite import ops
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.problem.case import Case

pytestmark = pytest.mark.gpu
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "vector_add": lambda size: (size,),
    "matrix_add": lambda size: (size, size + 16),
    "sigmoid": lambda size: (size,),
    "silu_mul": lambda size: (size, 2 * size),
    "silu_mul_grad": lambda size: (size, 2 * size),
    "rope": lambda size: (1, size, 3, 2, 64),
    "sum": lambda size: (size, 2 * size),
    "softmax": lambda size: (size, 2 * size),
    "rms_norm": lambda size: (size, 2 * size),
    "rms_norm_grad": lambda size: (size, 2 * size),
    "layer_norm_grad": lambda size: (size, 2 * size),
    "add_rms_norm": lambda size: (size, 2 * size),
    "layer_norm": lambda size: (size, 2 * size),
    "quantize": lambda size: (size, 2 * size),
    "silu_mul_quantize": lambda size: (size, 2 * size),
    "rms_norm_quantize": lambda size: (size, 2 * size),
    "cumsum": lambda size: (size, 2 * size),
    "top_k": lambda size: (size, 2 * size, 20),
    "cross_entropy": lambda size: (size, 2 * size),
    "linear_cross_entropy": lambda size: (64, size, size + 16),
    "matmul": lambda size: (64, size, size + 16),
    "block_scaled_matmul": lambda size: (64, size, size + 16),
    "int4_matmul": lambda size: (32, size, size + 16),
    "grouped_matmul": lambda size: (size, 3, 64, size + 16),
    "grouped_matmul_grad": lambda size: (64, 3, size, size + 16),
    "grouped_block_scaled_matmul": lambda size: (size, 3, 64, size + 16),
    "linear_sigmoid": lambda size: (64, size, size + 16),
    "conv2d": lambda size: (2, 9, size // 8, 64, 40, 3, 3, 1, 1),
    "max_pool2d": lambda size: (2, 9, size // 8, 64, 3, 3, 2, 1),
    "max_pool2d_grad": lambda size: (2, 9, size // 8, 64, 3, 3, 2, 1),
    "adam_step": lambda size: (size,),
    "attention": lambda size: (1, 2, 2, size, size, 64),
    "paged_attention": lambda size: (3, 4, 2, 2, size, 64, 16),
    "linear_sigmoid_grad": lambda size: (64, size, size + 16),
    "attention_grad": lambda size: (1, 2, 2, size, size, 64),
}
SLEEP_CYCLES = 100_000_000
"""About 50 ms of a stream: longer than a call."""
WARM, IN_THREADS, IN_CAPTURE = 96, 176, 208  # each is new to the autotuner where it is first used
LAUNCHERS = [
    each
    for name in SHAPES
    for each in builtin.implementations(name)
    if each.framework in ("triton", "cuda") and each.peer is None
]
each_launcher = pytest.mark.parametrize(
    "implementation", LAUNCHERS, ids=[f"{each.operation}-{each.name}" for each in LAUNCHERS]
)
Function = Callable[..., torch.Tensor]


def loaded(implementation: Implementation, where: Device, size: int) -> tuple[Function, Case]:
    """The function, after a call with the size WARM, and a case of `size` that it covers."""
    if (obstacle := implementation.obstacle(where)) is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    op = ops.get(implementation.operation)
    function: Function = getattr(implementation.load(), op.name)
    for dtype in ("bfloat16", "float32") if "bfloat16" in op.dtypes else op.dtypes:
        warm, case = (op.case(SHAPES[op.name](each), dtype) for each in (WARM, size))
        try:
            function(*inputs(warm, 0), **op.arguments(warm))
        except NotImplementedError:
            continue
        return _with_one_result(partial(function, **op.arguments(case))), case
    pytest.skip("covers neither bfloat16 nor float32 in ieee arithmetic")


def _with_one_result(function: Callable[..., Any]) -> Function:
    """The same function; several results are joined to one vector of float32: torch does not promote float8."""

    def joined(*given: torch.Tensor) -> torch.Tensor:
        found = function(*given)
        return torch.cat([each.flatten().float() for each in found]) if isinstance(found, tuple) else found

    return joined


def inputs(case: Case, seed: int, device: str = "cuda") -> tuple[torch.Tensor, ...]:
    return ops.get(case.operation).make_inputs(case, seed, torch.device(device))


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.cpu().float(), expected.cpu().float(), rtol=1e-2, atol=1e-2)


@each_launcher
def test_four_threads_at_once(implementation: Implementation, where: Device) -> None:
    function, case = loaded(implementation, where, IN_THREADS)
    sets = [inputs(case, seed) for seed in range(4)]
    torch.cuda.synchronize()
    found: dict[int, list[torch.Tensor]] = {}
    failed: list[BaseException] = []
    together = threading.Barrier(4)

    def work(index: int) -> None:
        try:
            together.wait()
            found[index] = [function(*sets[index]) for _ in range(8)]
            torch.cuda.synchronize()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for index, given in enumerate(sets):
        expected = function(*given)
        for each in found[index]:
            same(each, expected)


@each_launcher
def test_on_a_stream_that_is_not_the_default_one(implementation: Implementation, where: Device) -> None:
    function, case = loaded(implementation, where, WARM)
    given = inputs(case, 0)
    expected = function(*given)  # the next call is repeated without the launcher
    own = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)
    with torch.cuda.stream(own):
        found = function(*given)
        own.synchronize()
        same(found, expected)
    assert not torch.cuda.default_stream().query(), "the result waited for the default stream"


@each_launcher
def test_torch_compile_keeps_one_graph(implementation: Implementation, where: Device) -> None:
    function, case = loaded(implementation, where, WARM)
    given = inputs(case, 0)
    torch.compiler.reset()  # each function compiles the code of this lambda anew, and only so many may
    compiled = torch.compile(lambda *x: function(*x) * 2.0, fullgraph=True, backend="aot_eager")
    same(compiled(*given), function(*given) * 2.0)


@pytest.mark.two_gpus
@each_launcher
def test_on_a_device_that_is_not_the_current_one(implementation: Implementation, where: Device) -> None:
    function, case = loaded(implementation, where, WARM)
    torch.cuda.set_device(0)  # JAX leaves the last GPU current when it starts
    given = inputs(case, 0)
    expected = function(*given)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(function(*(x.to("cuda:1") for x in given))))
    thread.start()
    thread.join()
    found.append(function(*(x.to("cuda:1") for x in given)))
    assert torch.cuda.current_device() == 0
    assert [each.device.index for each in found] == [1, 1]
    for each in found:
        same(each, expected)
    same(function(*given), expected)


@each_launcher
def test_inside_a_graph_capture(implementation: Implementation, where: Device) -> None:
    """A first call works or is refused; after a call outside, the graph holds the kernel."""
    function, case = loaded(implementation, where, IN_CAPTURE)
    given, other = inputs(case, 0), inputs(case, 1)
    first, refused = torch.cuda.CUDAGraph(), ""
    with torch.cuda.graph(first):
        try:
            out = function(*given)
        except RuntimeError as error:
            refused = str(error)
    assert "inside a CUDA graph capture; call it once before" in refused or not refused, refused
    if not refused:
        first.replay()
        same(out, function(*given))
    expected = function(*other)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(*given)
    for x, y in zip(given, other, strict=True):
        x.copy_(y)
    graph.replay()
    same(out, expected)
