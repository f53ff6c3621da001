"""A worker's session in a rank: the same requests, answered in step with the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from suite.checking.repeats import Duration
from suite.core.phases import Phase, Started
from suite.external.implementation import ExternalImplementation
from suite.hardware.device import Device
from suite.implementations import lookup
from suite.implementations.bound_call import bind
from suite.implementations.identity import ExternalReference
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.ranks import group
from suite.ranks.implementation import over_ranks
from suite.ranks.parts import parts_alone
from suite.ranks.problem import RankProblem
from suite.ranks.sampling import Found, RankedCall, measure
from suite.timing import Timing
from suite.worker.protocol import (
    CheckRequest,
    ProbeRequest,
    Reply,
    Request,
    TimeExternalRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
)
from suite.worker.replies import timing_columns
from suite.worker.session import Session


class RankSession(Session):
    """Answers the requests of one rank. A user's file runs in this process too, and no other file does."""

    def __init__(self, device: Device, on_started: Callable[[Started], None]) -> None:
        import torch
        import torch.distributed as dist

        super().__init__(device, on_started)
        self.rank = dist.get_rank()
        if device.type == "cuda":
            self.torch_device = torch.device("cuda", device.index)
        self._external: ExternalReference | None = None

    def handle(self, request: Request) -> Reply:
        match request:
            case CheckRequest(implementation=ExternalReference() as reference):
                return super().handle(replace(request, implementation=self._welcome(reference)))
            case ProbeRequest(implementation=ExternalReference() as reference):
                return super().handle(replace(request, implementation=self._welcome(reference), every=True))
            case TimeExternalRequest():
                names = *filter(None, [request.vendor]), self._welcome(request.implementation)
                how = (request.seed, request.cache, request.transfers, request.max_noise, request.least)
                reply = super().handle(TimeRequest(request.case, names, *how))
                if isinstance(reply, TimeReply):
                    return TimeReply({request.implementation.name: reply.timings[request.implementation.name]})
                return reply
        return super().handle(request)

    def _welcome(self, reference: ExternalReference) -> str:
        self._external = reference
        return reference.name

    def make_problem(self, case: Case, seed: int) -> RankProblem:
        return RankProblem(case, seed, self.torch_device, self.rank)

    def repeats(self, duration: Duration) -> Duration:
        """Ends on all ranks after the same call."""
        return group.Together(duration.seconds, duration.least_s)

    def _find(self, name: str, case: Case) -> Implementation:
        external = self._external
        if external is not None and external.name == name:
            inner: Implementation = ExternalImplementation.from_reference(external, case)
        else:
            inner = lookup.find(case, name)
        self._found[name] = over_ranks(inner)
        return self._found[name]

    def time(self, request: TimeRequest) -> TimeReply | TimingFailed:
        """Time implementations that agree, together on all ranks; then judge their results of some rounds."""
        self._report(None, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        assert isinstance(problem, RankProblem)
        problem.present(0)
        calls = []
        for name in request.implementations:
            self._report(name, Phase.FIRST_CALL)
            bound = bind(self._find(name, request.case), problem.buffers, problem.op.arguments(problem.case))
            adapter, vendor = bound.implementation.adapter, bound.implementation.vendor is not None
            peak_bytes = adapter.peak_bytes(bound.function, bound.inputs, bound.arguments)
            calls.append(RankedCall(name, bound.issue, adapter, vendor, False, peak_bytes, bound.rebind))
        parts = parts_alone(problem)
        known = {part.name: None for part in parts}  # a part belongs to no implementation
        found = measure(
            [*calls, *parts], problem, request, lambda name: self._report(known.get(name, name), Phase.TIMED_CALL)
        )
        if found.wrong:
            name = next(iter(found.wrong))
            return TimingFailed("wrong", found.wrong[name], name, found.wrong)
        alone = {part.name: found.timings[part.name].device_us for part in parts}
        return TimeReply({call.name: self._columns(call, found.timings[call.name], found, alone) for call in calls})

    def _columns(
        self, call: RankedCall, timing: Timing, found: Found, alone: Mapping[str, float | None]
    ) -> TimingColumns:
        """The columns of a call's times. alone: the times of its product and of its communication, if it has both."""
        columns = timing_columns(timing, call.peak_bytes, self.device.type, found.judged)
        product_us, us = alone.get("product"), timing.device_us
        exposed_us = None if product_us is None or us is None else max(0.0, us - product_us)
        transfer_us = alone.get("communication")
        return replace(columns, product_us=product_us, communication_us=transfer_us, exposed_us=exposed_us)
