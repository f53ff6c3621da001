"""The checked call: one implementation, called three times on one case, and what must be true of it afterwards.

One right result is not enough. A kernel may return what it returned the last time, read its inputs before they have
arrived, leave elements unwritten where freed memory happens to hold the right numbers, or be right only at times. So:

    call   inputs                        what it shows
    1      draw 0                        loading, building and compiling; its time is `first_call_s`
    2      draw 1, in the same memory    results of the last call returned again; work on a stream of its own
    3      draw 0 again                  whether the bits are those of call 1: `deterministic`

All three read the same buffers, which hold the inputs of the call before until those of this one are copied over them:
who remembers a result by its inputs' addresses answers wrongly. On a GPU the inputs of call 2 arrive late (see
`Adapter.late_inputs`), and what the current stream finds in the output is copied at once: who works on another stream
reads stale inputs, or is copied before it has finished. What a call allocates holds NaN at first (`Adapter.poisoned`).

Each refusal begins with its kind: `type`, `shape`, `dtype`, `device`, `strides` (nothing else is looked at then);
`unfinished`, `aliases input`, `inputs changed`, `same buffer`, `not finite`, `value`, `not deterministic`. A result
that differs from call to call is within the contract, unless the implementation's file says `DETERMINISTIC = True`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from suite import ops
from suite.checking.verdict import Verdict, judge
from suite.worker import protocol

if TYPE_CHECKING:
    from suite.frameworks.base import Adapter
    from suite.problem.case import Case
    from suite.problem.truth import Truth

TRUTH_CACHE_ELEMENTS = 2**27
"""Truths of a case are kept from one implementation to the next up to this many elements in both draws (2 GiB)."""

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""For comparing bits: the integer type of so many bytes."""


class RefusedError(Exception):
    """The result is not an array of the right kind, and cannot be compared with the truth."""


@dataclass(frozen=True)
class Examination:
    """What the calls showed. The errors are the larger ones of both draws, `reason` says all that is wrong."""

    agrees: bool
    reason: str
    first_call_s: float
    error_ratio: float = math.inf
    max_ulp: float = math.inf
    max_rel: float = math.inf
    deterministic: str = ""
    """`yes` or `no`; empty if there were not two results to compare."""


class Problem:
    """One case made concrete: inputs drawn from two seeds, their truths, and the memory in which calls find them."""

    def __init__(self, case: Case, seed: int, device: torch.device) -> None:
        self.case = case
        self.op = ops.get(case.operation)
        draws = case, self.op.second(case)
        self.draws = tuple(self.op.make_inputs(draw, seed + i, device) for i, draw in enumerate(draws))
        self.device = self.draws[0][0].device  # with its index, as results will have it
        self.buffers = _twins(self.draws[0])
        self._truths: dict[int, list[Truth]] = {}

    def present(self, draw: int) -> None:
        """Put the inputs of `draw` where calls find them, with all that lies between and beside strided elements."""
        for buffer, given in zip(self.buffers, self.draws[draw], strict=True):
            _memory(buffer).copy_(_memory(given))

    def changed(self, draw: int) -> list[int]:
        """Positions of the inputs that no longer are what `present(draw)` put there."""
        pairs = zip(self.buffers, self.draws[draw], strict=True)
        return [i for i, (buffer, given) in enumerate(pairs) if not torch.equal(_memory(buffer), _memory(given))]

    def truth(self, draw: int) -> Iterable[Truth]:
        """The exact result of `draw` in pieces, computed once if it is small enough to be kept."""
        if 2 * math.prod(self.op.output_shape(self.case)) > TRUTH_CACHE_ELEMENTS:
            return self.op.truth(self.draws[draw], self.case)
        if draw not in self._truths:
            self._truths[draw] = list(self.op.truth(self.draws[draw], self.case))
        return self._truths[draw]


def examine(
    load: Callable[[], Callable[..., Any]],
    adapter: Adapter,
    problem: Problem,
    *,
    claims_determinism: bool = False,
    announce: Callable[[str], None] = lambda phase: None,
) -> Examination:
    """Load an implementation, call it three times, and judge it. `announce` is told before each call and the judging.

    Whatever the implementation raises passes through.
    """
    begin = time.perf_counter()
    announce(protocol.FIRST_CALL)
    try:
        function = load()
        first, first_copy, wrong = _call(function, adapter, problem, 0)
        first_call_s = time.perf_counter() - begin
        wrong |= _misuses(problem, 0, first, ())
        settled = first.clone() if "unfinished" in wrong else first_copy

        announce("second call")
        second, second_copy, unfinished = _call(function, adapter, problem, 1, late=True)
        wrong |= unfinished | _misuses(problem, 1, second, (first,))
        if not same_bits(first, settled):
            wrong.setdefault("same buffer", "the second call wrote over the result of the first")
        announce(protocol.JUDGING)
        second_verdict = judge(second_copy, problem.truth(1), **_form(problem))
        stale = not second_verdict.agrees and same_bits(first_copy, second_copy)
        del second_copy  # a quarter of the memory that outputs take

        announce("third call")
        third, _, unfinished = _call(function, adapter, problem, 0)
        wrong |= unfinished | _misuses(problem, 0, third, (first, second))
        repeats = same_bits(third, first_copy)
    except RefusedError as refused:
        return Examination(False, str(refused), time.perf_counter() - begin)
    announce(protocol.JUDGING)
    verdicts = judge(first_copy, problem.truth(0), **_form(problem)), second_verdict
    reasons = [f"{kind}: {what}" for kind, what in wrong.items()]
    reasons += _disagreement(verdicts, stale)
    if claims_determinism and not repeats:
        reasons.append(f"not deterministic: {_difference(third, first_copy)}, but the file says DETERMINISTIC = True")
    return Examination(
        agrees=not reasons,
        reason="; ".join(reasons),
        first_call_s=first_call_s,
        error_ratio=max(verdict.error_ratio for verdict in verdicts),
        max_ulp=max(verdict.max_ulp for verdict in verdicts),
        max_rel=max(verdict.max_rel for verdict in verdicts),
        deterministic="yes" if repeats else "no",
    )


def still_right(result: Any, adapter: Adapter, problem: Problem) -> Verdict:
    """The verdict on the result of a call on draw 0 after the implementation was timed: who answers a few calls rightly
    and then saves itself the work is found here. Raises `RefusedError`.
    """
    return judge(_as_torch(result, adapter, problem), problem.truth(0), **_form(problem))


def _call(
    function: Callable[..., Any], adapter: Adapter, problem: Problem, draw: int, *, late: bool = False
) -> tuple[torch.Tensor, torch.Tensor, dict[str, str]]:
    """The result of one call, a copy of it that was made as soon as the call returned, in stream order, and whether the
    two differ once the whole device has come to rest."""
    case, device = problem.case, problem.device
    with adapter.late_inputs(device) if late else contextlib.nullcontext():
        problem.present(draw)
        inputs = [adapter.to_native(buffer) for buffer in problem.buffers]
        call = partial(function, *inputs, **problem.op.arguments(case))
        result = adapter.poisoned(call, problem.op.output_shape(case), problem.op.output_dtype(case), device)
        output = _as_torch(result, adapter, problem)
        copy = output.clone()
    adapter.wait(result)
    wrong = {}
    if not same_bits(output, copy):
        wrong["unfinished"] = "the result changed after the current stream had passed it: work on another stream"
    return output, copy, wrong


def _as_torch(result: Any, adapter: Adapter, problem: Problem) -> torch.Tensor:
    """The result as a torch tensor over the same memory. Raises `RefusedError` if it is not of the contract's form."""
    expected = _form(problem)
    if not adapter.is_array(result):
        raise RefusedError(f"type: the result is a {type(result).__name__}, not a {adapter.array}")
    shape, dtype, strides = adapter.form(result)
    if shape != expected["shape"]:
        raise RefusedError(f"shape: the result has shape {shape}, expected {expected['shape']}")
    if dtype != expected["dtype"]:
        raise RefusedError(f"dtype: the result is {dtype}, expected {expected['dtype']}")
    if not _row_major(shape, strides):
        raise RefusedError(f"strides: the result has strides {strides}, expected row-major without gaps")
    output: torch.Tensor = adapter.to_torch(result).detach()
    if output.device != problem.device:
        raise RefusedError(f"device: the result is on {output.device}, expected {problem.device}")
    return output


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether `strides` are those of a C array; in a dimension of 1, and in an empty array, any will do."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step and 0 not in shape:
            return False
        step *= size
    return True


def _form(problem: Problem) -> dict[str, Any]:
    return {"shape": problem.op.output_shape(problem.case), "dtype": problem.op.output_dtype(problem.case)}


def _misuses(problem: Problem, draw: int, output: torch.Tensor, earlier: Sequence[torch.Tensor]) -> dict[str, str]:
    """What a call did to memory that is not its own: kinds of refusal, each with its sentence."""
    wrong = {}
    begin, end = _range(output)
    for position, buffer in enumerate(problem.buffers, 1):
        storage = buffer.untyped_storage()
        if begin < storage.data_ptr() + storage.nbytes() and storage.data_ptr() < end:
            wrong["aliases input"] = f"the result lies in the memory of argument {position}"
    changed = problem.changed(draw)
    if changed:
        wrong["inputs changed"] = f"the call wrote to argument {changed[0] + 1}"
    for other in earlier:
        other_begin, other_end = _range(other)
        if begin < other_end and other_begin < end:
            wrong["same buffer"] = "two calls returned the same memory, whose first result somebody may still hold"
    return wrong


def _disagreement(verdicts: Sequence[Verdict], stale: bool) -> list[str]:
    """The reason of the first draw that is wrong, if one is. `stale`: both have the same result."""
    first, second = verdicts
    if not first.agrees:
        return [first.reason]
    if not second.agrees and stale:
        return [f"{second.reason}: the second call gave the first one's result, kept or from inputs not yet there"]
    return [] if second.agrees else [f"{second.reason} (in the second call, with other inputs)"]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous arrays of one type hold the same numbers to the bit; any NaN equals any other."""
    integer = INTEGERS[a.element_size()]
    if torch.equal(a.view(integer), b.view(integer)):
        return True
    return a.shape == b.shape and bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())


def _difference(a: torch.Tensor, b: torch.Tensor) -> str:
    """Where two results of the same inputs differ first, and how."""
    integer = INTEGERS[a.element_size()]
    differs = (a.view(integer) != b.view(integer)) & ~(a.isnan() & b.isnan())
    flat = int(differs.reshape(-1).to(torch.uint8).argmax())
    position = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(flat), a.shape))
    got, before = (float(t.reshape(-1)[flat]) for t in (a, b))
    return f"at [{position}] {got:.9g}, but {before:.9g} from a call with the same inputs before"


def _twins(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensors like `inputs` in memory of their own: same offsets and strides, and shared where those share it."""
    storages: dict[int, torch.UntypedStorage] = {}
    twins = []
    for tensor in inputs:
        storage = storages.setdefault(tensor.untyped_storage().data_ptr(), _memory(tensor).clone().untyped_storage())
        twin = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        twins.append(twin.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride()))
    return tuple(twins)


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of the storage that `tensor` is a view of, as integers of the widest type that it is a multiple of."""
    storage = tensor.untyped_storage()
    everything = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    return everything.view(INTEGERS[math.gcd(8, storage.nbytes())])


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of a contiguous tensor's first byte and of the one after its last; (0, 0) if it has none."""
    if tensor.numel() == 0:
        return 0, 0
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
