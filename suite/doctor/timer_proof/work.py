"""Provides work of known cost in each installed framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import frameworks
from suite.core.integers import cdiv
from suite.core.text import error_line
from suite.doctor.timer_proof.checks import NOT_RUN, OFF, ProofRow, without_times
from suite.hardware.device import Device

if TYPE_CHECKING:
    import torch

SOURCE = Path(__file__).with_name("work.cu")
FRAMEWORKS = ("cuda", "triton", "torch", "jax")
BLOCK_ELEMENTS = 512
"""Elements that one block of `Kit.blocks` processes."""


class Arena:
    """The device memory that all frameworks use.

    `x`, `out`: float32 input and output of `elements` each. `elapsed`: cycles and nanoseconds (device's timer) of the
    last CUDA spin. `stamps` [blocks, 2]: begin and end of each block of the last `Kit.blocks`, in ns of that timer.
    """

    def __init__(self, device: torch.device, elements: int) -> None:
        import torch

        self.device = device
        self.elements = elements
        self.x = torch.randn(elements, device=device)
        self.out = torch.empty_like(self.x)
        self.elapsed = torch.zeros(2, dtype=torch.int64, device=device)
        self.stamps = torch.zeros(elements // BLOCK_ELEMENTS, 2, dtype=torch.int64, device=device)

    def wait(self, result: object = None) -> None:
        import torch

        torch.cuda.synchronize(self.device)

    def span_us(self, blocks: int) -> float:
        """The time from the first begin to the last end of the last call's blocks, in us."""
        stamps = self.stamps[:blocks]
        return float(stamps[:, 1].max() - stamps[:, 0].min()) / 1000


@dataclass(frozen=True)
class Kit:
    """The work of one framework. Each function issues one activity and returns the argument of `wait`.

    A function is None if the framework has no such activity.
    """

    name: str
    wait: Callable[[Any], None]
    add_one: Callable[[int], object]
    """(elements): computes out = x + 1 for the first `elements`."""
    spin: Callable[[int], object] | None = None
    """(cycles): keeps one thread, or one warp, busy for `cycles`."""
    fill: Callable[[int], object] | None = None
    """(bytes): runs the runtime's own fill."""
    copy: Callable[[int], object] | None = None
    """(bytes): runs the runtime's own copy on the device."""
    blocks: Callable[[int], object] | None = None
    """(blocks): runs a kernel of `blocks` blocks, which store their stamps in the arena."""


def kits(where: Device, arena: Arena) -> tuple[list[Kit], list[ProofRow]]:
    """The work of every framework that runs here, and a row for each other framework. Calls each function once."""
    found, failed = [], []
    for name in FRAMEWORKS:
        missing = frameworks.get(name).missing(where)
        if missing is not None:
            failed.append(without_times(name, "everything", NOT_RUN, missing))
            continue
        try:
            kit = _MAKERS[name](arena)
            for work in (kit.add_one, kit.spin, kit.fill, kit.copy, kit.blocks):
                if work is not None:
                    kit.wait(work(4096))
            arena.wait()
        except Exception as error:  # the failure of one framework is one row
            failed.append(without_times(name, "everything", OFF, error_line(error)))
        else:
            found.append(kit)
    return found, failed


def _cuda(arena: Arena) -> Kit:
    from cuda_ref import build

    launch = partial(build.launch, SOURCE)
    return Kit(
        "cuda",
        arena.wait,
        add_one=lambda n: launch("add_one", arena.device, arena.x, arena.out, n),
        spin=lambda cycles: launch("spin", arena.device, cycles, arena.elapsed),
        fill=lambda size: launch("fill", arena.device, arena.out, size),
        copy=lambda size: launch("copy", arena.device, arena.x, arena.out, size),
        blocks=lambda count: launch("stamped", arena.device, arena.x, arena.out, arena.stamps, count),
    )


def _triton(arena: Arena) -> Kit:
    import torch

    from suite.doctor.timer_proof import work_triton

    elapsed = torch.zeros(1, dtype=torch.int64, device=arena.device)
    block = 2048  # elements per program: four 16-byte accesses per thread
    return Kit(
        "triton",
        arena.wait,
        add_one=lambda n: work_triton.add_one_kernel[(cdiv(n, block),)](arena.x, arena.out, n, BLOCK=block),
        spin=lambda cycles: work_triton.spin_kernel[(1,)](cycles, elapsed, num_warps=1),
    )


def _torch(arena: Arena) -> Kit:
    import torch

    return Kit(
        "torch",
        arena.wait,
        add_one=lambda n: torch.add(arena.x[:n], 1.0, out=arena.out[:n]),
        spin=torch.cuda._sleep,
    )


def _jax(arena: Arena) -> Kit:
    """JAX has no spin. Its inputs alias the arena's memory; its outputs do not."""
    import jax

    adapter = frameworks.get("jax")
    add_one = jax.jit(lambda x: x + 1.0)
    arrays: dict[int, Any] = {}

    def issue(n: int) -> Any:
        if n not in arrays:
            arrays[n] = adapter.to_native(arena.x[:n])
        return add_one(arrays[n])

    return Kit("jax", adapter.wait, add_one=issue)


_MAKERS: dict[str, Callable[[Arena], Kit]] = {"cuda": _cuda, "triton": _triton, "torch": _torch, "jax": _jax}
