"""Calls made only to fill caches with the libraries and programs that they build."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch

from suite import ops
from suite.core.phases import Phase
from suite.implementations.implementation import Implementation
from suite.problem.accepted_cases import cases_for
from suite.problem.case import Case
from suite.worker.protocol import BuildReply, BuildRequest


def build(
    implementation: Implementation, request: BuildRequest, device: torch.device, on_phase: Callable[[Phase], None]
) -> BuildReply:
    """Call an implementation of the tree once on a case, and on telling cases if asked. Autotuners time nothing.

    Exceptions of the call on the case pass through; those of telling cases are ignored.
    """
    module, adapter = implementation.load(), implementation.adapter
    function = implementation.function()

    def call(case: Case) -> None:
        op = ops.operation(case)
        on_phase(Phase.PREPARING)
        inputs = op.make_inputs(case, request.seed, device)
        on_phase(Phase.FIRST_CALL)
        called = adapter.called_with(function, inputs)
        adapter.wait(called(*map(adapter.to_native, inputs), **op.arguments(case)))

    case = request.case
    if request.telling != "only":
        try:
            with adapter.building(module):
                call(case)
        except NotImplementedError:
            return BuildReply(covered=False)
    if request.telling != "no":
        with adapter.without_tuning(module):
            for each in cases_for(ops.operation(case), case, first=True, device_type=device.type).values():
                with suppress(Exception):
                    call(each)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes build too
    return BuildReply(covered=True)
