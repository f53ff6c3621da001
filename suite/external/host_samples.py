"""Samples on a CPU inside an external process: a call, and the places of its outputs.

The worker reads the outputs in this process's memory itself: a process that copied them could still compute them then.
"""

from __future__ import annotations

from time import perf_counter_ns  # bound before the file can replace it
from typing import TYPE_CHECKING, Any

from suite.external import protocol as p
from suite.problem.outputs import as_judged

if TYPE_CHECKING:
    import torch

    from suite.external.held import Held
    from suite.frameworks.base import Adapter
    from suite.implementations.bound_call import BoundCall


class HostSamples:
    """Takes samples. The result of the latest one stays in memory until the next."""

    def __init__(self) -> None:
        self._outputs: tuple[torch.Tensor, ...] = ()

    def take(self, held: Held, bound: BoundCall) -> p.Sampled:
        self._outputs = held.latest = ()
        bound.rebind(held.operands)
        start = perf_counter_ns()
        result = bound.issue()
        issued = perf_counter_ns()
        bound.implementation.adapter.wait(result)
        ready = perf_counter_ns()
        held.latest = result
        return self._sampled(issued - start, ready - start, bound.implementation.adapter, result, held)

    def empty(self, held: Held, adapter: Adapter) -> p.Sampled:
        """A sample whose call only fills its outputs, so that they lie in the cache as those of a call do."""
        self._outputs = ()
        if adapter.name not in held.inputs:
            held.inputs[adapter.name] = tuple(map(adapter.to_native, held.operands))
        if not all(map(adapter.shares_memory, held.inputs[adapter.name], held.operands)):
            list(map(adapter.to_native, held.operands))
        start = perf_counter_ns()
        forms = zip(held.output_shapes, held.output_dtypes, strict=True)
        results = tuple(adapter.to_native(_zeros(*form)) for form in forms)
        adapter.wait(results)
        ready = perf_counter_ns()
        return self._sampled(0, ready - start, adapter, results if len(results) > 1 else results[0], held)

    def _sampled(self, issued_ns: int, ready_ns: int, adapter: Adapter, result: Any, held: Held) -> p.Sampled:
        from suite.checking.calls import RefusedError, as_torch

        try:
            self._outputs = tuple(map(as_judged, as_torch(result, adapter, held)))
        except RefusedError as refused:
            return p.Sampled(issued_ns, ready_ns, str(refused))
        places = tuple(p.Place(each.data_ptr(), tuple(each.stride())) for each in self._outputs)
        return p.Sampled(issued_ns, ready_ns, "", places)


def _zeros(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype)).zero_()
