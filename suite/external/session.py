"""Inside an external process: it answers the worker's commands about one user's file.

It loads the file, calls it on inputs that the worker puts into shared memory, and puts the results into shared memory.
It holds no truth, bound or other file. The worker alone chooses calls, times and inputs, and judges the results.
"""

from __future__ import annotations

import contextlib
import gc
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns  # bound before the file can replace it
from typing import TYPE_CHECKING, Any, cast

from suite import frameworks, ops
from suite.external import protocol as p
from suite.external.channel import Channel
from suite.external.implementation import ExternalImplementation
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.implementations import failure, lookup
from suite.implementations.arguments import missing_parameters
from suite.implementations.bound_call import BoundCall, bind
from suite.implementations.identity import ExternalReference, Reference
from suite.problem.outputs import join_into

if TYPE_CHECKING:
    import torch

    from suite.checking.calls import LocalResult
    from suite.implementations.implementation import Implementation
    from suite.problem.case import Case
    from suite.timing.intervals import Launch
    from suite.timing.recorder import DeliveringRecorder

SPIN_NS = 300_000
"""Time of polling for the next command without sleeping: after a sleep the processor is slow."""


@dataclass
class Held:
    """The present case: its operands, the memory of the result, and the results of calls."""

    case: Case
    operands: tuple[torch.Tensor, ...]
    staged: tuple[torch.Tensor, ...]
    result: torch.Tensor
    arguments: dict[str, Any]
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    device: torch.device
    checked: list[LocalResult]
    kept: dict[str, list[Any]]
    """The results of samples that the worker keeps, by name, the latest last."""
    bound: dict[str, BoundCall]
    empty: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]
    """Inputs and results of samples without a call, by framework."""


class ExternalSession:
    """Answers commands about implementations on one device."""

    def __init__(self, device: Device, channel: Channel) -> None:
        import torch

        from suite.timing import recorder_cupti, target

        self.device, self.channel = device, channel
        self.torch_device = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
        self.target = target.target(self.torch_device)
        if device.type == "cuda":
            with contextlib.suppress(Exception):  # StartRecorder raises it again
                recorder_cupti.load()
        self.recorder: DeliveringRecorder | None = None
        self.held: Held | None = None
        self.current: Implementation | None = None
        self._functions: dict[Reference, tuple[Callable[..., Any], Mapping[str, Any]]] = {}
        self._watching: list[Callable[[], str]] = []
        """Each ends a watch over compilations and returns its outcome."""
        self._latest: dict[str, tuple[p.Observed, ...]] = {}

    def serve(self) -> None:
        """Answer commands until the worker closes the socket."""
        while True:
            self.channel.spin(SPIN_NS)
            command, descriptors = self.channel.receive(p.Command)
            self.channel.send(self.answer(command, descriptors))

    def answer(self, command: Any, descriptors: list[int]) -> Any:
        """The answer to a command; an exception of the implementation becomes a `Raised`."""
        from suite.timing import NoRecorderError, RecorderError

        self.current = None
        try:
            return self._execute(command, descriptors)
        except (RecorderError, NoRecorderError) as error:
            return p.Raised("recorder" if isinstance(error, RecorderError) else "no recorder", str(error))
        except Exception as error:
            raised = failure.unwrapped(error)
            if isinstance(raised, NotImplementedError):
                return p.Raised("unsupported", failure.unsupported_reason(raised))
            traceback.print_exc()
            describe = failure.describe if self.current is None else self.current.describe_error
            declines = isinstance(command, p.Check) and command.telling and failure.is_assertion(error)
            return p.Raised("unsupported" if declines else "error", describe(error, self.device.type))

    def _execute(self, command: Any, descriptors: list[int]) -> Any:
        match command:
            case p.Hold():
                return self._hold(command, descriptors)
            case p.Release():
                return self._release()
            case p.Check():
                return self._check(command)
            case p.Deliver():
                return self._deliver(command.which)
            case p.Bind():
                return self._bind(command.implementation)
            case p.Rebind():
                for bound in self._case.bound.values():
                    bound.rebind(self._case.operands)
                return p.Finished()
            case p.Run():
                return self._run(command)
            case p.Sample():
                return self._sample(command)
            case p.Record():
                return self._record_sample(command.name)
            case p.PeakBytes():
                bound = self._bound_call(command.name)
                return p.Peak(bound.implementation.adapter.peak_bytes(bound.function, bound.inputs, bound.arguments))
            case p.About():
                found = self._find(command.implementation)
                compile_cache = "".join(outcome() for outcome in self._watching)
                self._watching = []
                return p.Facts(tuple(found.remarks()), found.adapter.configuration(found.load()), compile_cache)
        return self._record(command)

    # The case

    @property
    def _case(self) -> Held:
        assert self.held is not None
        return self.held

    def _hold(self, command: p.Hold, descriptors: list[int]) -> p.Finished:
        from suite.external.shared_memory import attach, tensor_of

        blocks = attach(command.blocks, descriptors, self.torch_device)
        self.held = Held(
            case=command.case,
            operands=tuple(tensor_of(each, blocks) for each in command.operands),
            staged=tuple(tensor_of(each, blocks) for each in command.staged),
            result=tensor_of(command.result, blocks),
            arguments=ops.operation(command.case).arguments(command.case),
            output_shapes=command.output_shapes,
            output_dtypes=command.output_dtypes,
            device=blocks[command.result.block].device,
            checked=[],
            kept={},
            bound={},
            empty={},
        )
        self._functions.clear()
        for end in self._watching:
            end()
        self._watching = []
        return p.Finished()

    def _release(self) -> p.Finished:
        self.held = None
        gc.collect()
        gc.freeze()
        if self.device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
        return p.Finished()

    def _find(self, reference: Reference) -> Implementation:
        self.current = (
            ExternalImplementation.from_reference(reference, self._case.case)
            if isinstance(reference, ExternalReference)
            else lookup.find(self._case.case, reference)
        )
        return self.current

    def _bound_call(self, name: str) -> BoundCall:
        bound = self._case.bound[name]
        self.current = bound.implementation
        return bound

    # The check

    def _check(self, command: p.Check) -> p.Called:
        from suite.checking.calls import RefusedError, call_once, repeatable

        held, implementation = self._case, self._find(command.implementation)
        function, arguments = self._function(implementation, command)

        def present() -> None:
            for operand, staged in zip(held.operands, held.staged if command.late else (), strict=False):
                _copy_storage(operand, staged)

        adapter = implementation.adapter
        try:
            with adapter.checks_memory(self.device) if command.telling else contextlib.nullcontext():
                called = call_once(
                    repeatable(function) if command.again else function,
                    adapter,
                    held.operands,
                    arguments,
                    held,
                    present,
                    late=command.late,
                )
        except RefusedError as refused:
            return p.Called(str(refused))
        if kept := self.target.kept_cache():
            return p.Called(kept)
        held.result.copy_(called.early)
        self.target.synchronize()
        called.early = called.early.new_empty(0)
        if not command.again:
            held.checked.append(called)
        return p.Called("", called.alias, called.ranges, called.unfinished, called.spilled)

    def _function(
        self, implementation: Implementation, command: p.Check
    ) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """The implementation's function and the arguments that it takes; the first call of a case loads it."""
        held, reference = self._case, command.implementation
        if reference not in self._functions:
            function = implementation.function_for(held.case, len(held.operands))
            arguments = implementation.accepted(function, held.arguments)
            if command.telling and missing_parameters(function, len(held.operands), arguments):
                raise NotImplementedError(f"has no parameters for {len(held.operands)} arrays and {arguments}")
            self._watching.append(implementation.adapter.watch_cache())  # the framework is imported by now
            self._functions[reference] = function, arguments
        return self._functions[reference]

    def _deliver(self, which: int | str) -> p.Delivered:
        held = self._case
        if isinstance(which, int):
            held.result.copy_(held.checked[which].now())
            self.target.synchronize()
            return p.Delivered()
        return self._export(held.bound[which].implementation.adapter, held.kept[which].pop())

    def _export(self, adapter: Adapter, result: Any) -> p.Delivered:
        from suite.checking.calls import RefusedError, as_torch

        held = self._case
        try:
            join_into(held.result, as_torch(result, adapter, held))
        except RefusedError as refused:
            return p.Delivered(str(refused))
        self.target.synchronize()
        return p.Delivered(self.target.kept_cache())

    # The timing

    def _bind(self, reference: Reference) -> p.Bound:
        held, implementation = self._case, self._find(reference)
        bound = bind(implementation, held.operands, held.arguments)
        held.bound[implementation.name] = bound
        return p.Bound(bound.copied(held.operands))

    def _run(self, command: p.Run) -> p.Ran | p.Delivered:
        if not command.name:
            return p.Ran(0, 0)
        bound, result = self._bound_call(command.name), None
        if self.target.on_host:
            bound.rebind(self._case.operands)
        start = perf_counter_ns()
        for _ in range(command.count):
            result = bound.issue()
        issued = perf_counter_ns()
        bound.implementation.adapter.wait(result)
        ran = p.Ran(issued - start, perf_counter_ns() - start)
        if not command.keep:
            return ran
        self.channel.send(ran)
        return self._export(bound.implementation.adapter, result)

    def _sample(self, command: p.Sample) -> p.Sampled:
        """One sample by the worker's clock, which runs from its command to the end of this answer."""
        if not command.name:
            return self._empty_sample(frameworks.get(command.framework))
        held, bound = self._case, self._bound_call(command.name)
        bound.rebind(held.operands)
        start = perf_counter_ns()
        result = bound.issue()
        issued = perf_counter_ns()
        bound.implementation.adapter.wait(result)
        ready = perf_counter_ns()
        held.kept.setdefault(command.name, []).extend([result] * command.keep)
        refusal = self._export(bound.implementation.adapter, result).refusal
        return p.Sampled(issued - start, ready - start, refusal)

    def _empty_sample(self, adapter: Adapter) -> p.Sampled:
        """All of a sample but the call."""
        held = self._case
        if adapter.name not in held.empty:
            outputs = [_zeros(*form) for form in zip(held.output_shapes, held.output_dtypes, strict=True)]
            held.empty[adapter.name] = (
                tuple(map(adapter.to_native, held.operands)),
                tuple(map(adapter.to_native, outputs)),
            )
        inputs, results = held.empty[adapter.name]
        if not all(map(adapter.shares_memory, inputs, held.operands)):
            list(map(adapter.to_native, held.operands))
        start = perf_counter_ns()
        adapter.wait(results)
        ready = perf_counter_ns()
        self._export(adapter, results if len(results) > 1 else results[0])
        return p.Sampled(0, ready - start, "")

    def _record_sample(self, name: str) -> Any:
        """One sample by the recorder; the commands before `Go` are its preparation, the export its delivery."""
        bound, spans, keep = self._bound_call(name), [0, 0, 0], False
        result: Any = None
        delivered: list[p.Delivered] = []

        def prepare() -> None:
            nonlocal keep
            self.channel.send(p.Finished())
            while True:
                self.channel.spin(SPIN_NS)
                command, descriptors = self.channel.receive(p.Command)
                if isinstance(command, p.Go):
                    self.current, keep = bound.implementation, command.keep
                    return
                self.channel.send(self.answer(command, descriptors))

        def run() -> None:
            nonlocal result
            spans[0] = perf_counter_ns()
            result = bound.issue()
            spans[1] = perf_counter_ns()
            bound.implementation.adapter.wait(result)
            spans[2] = perf_counter_ns()

        def deliver() -> None:
            self.channel.send(p.Ran(spans[1] - spans[0], spans[2] - spans[0]))
            self._case.kept.setdefault(name, []).extend([result] * keep)
            delivered.append(self._export(bound.implementation.adapter, result))

        self.target.give_cache_back()
        assert self.recorder is not None
        self.recorder.sample(name, prepare, run)
        self.recorder.deliver(deliver)
        return delivered[0]

    def _record(self, command: Any) -> Any:
        """Answer a command to the recorder."""
        if isinstance(command, p.StartRecorder):
            recorder = cast("DeliveringRecorder", self.target.recorder())
            recorder.start()
            self.recorder = recorder
            return p.Finished()
        assert self.recorder is not None
        match command:
            case p.Serialize():
                self.recorder.serialize_kernels()
            case p.Collect():
                return self._collect(self.recorder)
            case p.StopRecorder():
                self.recorder.stop()
                self.recorder = None
        return p.Finished()

    def _collect(self, recorder: DeliveringRecorder) -> p.Collected:
        samples, latest = [], {}
        for name, us, activities, before_us, after_us in recorder.collect():
            samples.append(p.Recorded(name, us, len(activities or ()), before_us, after_us))
            latest[name] = activities or ()
        observed = (
            p.Latest(name, tuple(p.Observed(*each[:5], _launch(each.launch)) for each in activities))
            for name, activities in latest.items()
        )
        return p.Collected(tuple(samples), tuple(observed))


def _zeros(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    import torch

    return torch.zeros(shape, dtype=getattr(torch, dtype))


def _launch(launch: Launch | None) -> p.ObservedLaunch | None:
    return None if launch is None else p.ObservedLaunch(*launch)


def _copy_storage(to: torch.Tensor, given: torch.Tensor) -> None:
    from suite.checking.memory import whole_storage

    whole_storage(to).copy_(whole_storage(given))
