"""Makes one call of one implementation in the current process, between cudaProfilerStart and -Stop, or counted.

`suite/profiling/child.py` starts this file as `python -m suite.profiling.once`, with a `Once` as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from suite import frameworks
from suite.core.files import write_atomically
from suite.external.implementation import ExternalImplementation
from suite.frameworks import _caches
from suite.hardware.device import Device
from suite.implementations import lookup
from suite.implementations.bound_call import BoundCall, bind
from suite.implementations.identity import ExternalReference, Reference
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.processes.codec import from_json

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Once:
    """One call, and the code to write: files of `kinds` in `folder`. Without kinds no code is written.

    counts: a file for the counts of the call, as JSON. The call is then made on a CPU, and only once.
    """

    case: Case
    implementation: Reference
    seed: int
    device: Device
    kinds: tuple[str, ...] = ()
    folder: str = ""
    counts: str = ""


def prepare(device: Device) -> None:
    """Set the environment variables that the frameworks read when they are imported."""
    for name in frameworks.names():
        frameworks.get(name).prepare(device)


def torch_device(device: Device, index: int) -> torch.device:
    """The device as torch names it. `index` is its index among the GPUs that this process sees."""
    import torch

    return torch.device("cuda", index) if device.type == "cuda" else torch.device("cpu")


def call(case: Case, implementation: Implementation, seed: int, device: torch.device) -> BoundCall:
    """Call `implementation` on the case's inputs: first to build, compile and tune, then once under the profiler.

    Exceptions of the implementation pass through.
    """
    import torch

    from suite.checking.problem import Problem

    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        problem = Problem(case, seed, device)
        problem.present(0)
        bound = bind(implementation.for_case(case), problem.buffers, problem.op.arguments(case))
        with profiled(device):
            bound.run()
    return bound


def counts(case: Case, implementation: Implementation, seed: int) -> dict[str, int | float | None]:
    """Call `implementation` once on a CPU, and count what its kernels do. Exceptions of it pass through."""
    import torch

    from suite.checking.problem import Problem

    problem = Problem(case, seed, torch.device("cpu"))
    problem.present(0)
    each, adapter = implementation.for_case(case), implementation.adapter
    function = each.function()
    inputs = tuple(adapter.to_native(tensor) for tensor in problem.buffers)
    arguments = each.accepted(function, problem.op.arguments(case))
    found = adapter.counts(BoundCall(each, function, inputs, arguments).run)
    if not found:
        raise NotImplementedError("the call runs no kernel")
    return found


@contextlib.contextmanager
def profiled(device: torch.device) -> Iterator[None]:
    """Let a profiler of CUDA programs record the work that the device runs inside the context."""
    if device.type != "cuda":
        yield
        return
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize(device)
    finally:
        torch.cuda.profiler.stop()


def write_code(bound: BoundCall, kinds: tuple[str, ...], folder: Path) -> None:
    """Write the code of the kernels that this process ran."""
    texts = bound.implementation.adapter.code(bound.function, bound.inputs, bound.arguments, kinds)
    for name, text in texts.items():
        write_atomically(folder / name, text)


def _found(reference: Reference, case: Case) -> Implementation:
    if isinstance(reference, ExternalReference):
        return ExternalImplementation.from_reference(reference, case)
    return lookup.find(case, reference)


def main() -> None:
    """Run the child process. If it fails, the last line that it prints is the reason."""
    once: Once = from_json(Once, json.loads(sys.argv[1]), "once")
    implementation = _found(once.implementation, once.case)
    prepare(once.device)
    try:
        if once.counts:
            write_atomically(Path(once.counts), json.dumps(counts(once.case, implementation, once.seed)))
            return
        bound = call(once.case, implementation, once.seed, torch_device(once.device, 0))
        if once.kinds:
            write_code(bound, once.kinds, Path(once.folder))
    except Exception as error:
        print(implementation.describe_error(error, once.device.type), file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        _caches.remove_temporary(os.getpid())


if __name__ == "__main__":
    main()
