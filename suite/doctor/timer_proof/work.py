"""Work of known cost in every framework that is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import frameworks
from suite.doctor.local_device import one_line
from suite.doctor.timer_proof.checks import NOT_RUN, OFF, Line, without
from suite.hardware.device import Device

if TYPE_CHECKING:
    import torch

SOURCE = Path(__file__).with_name("work.cu")
FRAMEWORKS = ("cuda", "triton", "torch", "jax")
BLOCK_ELEMENTS = 512
"""What a block of `Kit.blocks` works on."""


class Arena:
    """What the frameworks work on: `elements` float32 to read, as many to write, and where a spin says how long it was.

    `elapsed` is of the last spin in CUDA: cycles, and nanoseconds of the device's timer. `stamps` are of the last call
    with so many blocks: when each began and ended on that timer, in nanoseconds.
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
        """From the begin of the first of the last call's blocks to the end of the last."""
        stamps = self.stamps[:blocks]
        return float(stamps[:, 1].max() - stamps[:, 0].min()) / 1000


@dataclass(frozen=True)
class Kit:
    """The work of one framework. Each function queues one activity and returns what `wait` takes; None where the
    framework has no such thing."""

    name: str
    wait: Callable[[Any], None]
    add_one: Callable[[int], object]
    """out = x + 1, for the first so many elements."""
    spin: Callable[[int], object] | None = None
    """One thread, or one warp, busy for so many cycles."""
    fill: Callable[[int], object] | None = None
    """So many bytes set to one value by the runtime's own fill."""
    copy: Callable[[int], object] | None = None
    """So many bytes copied by the runtime's own copy."""
    blocks: Callable[[int], object] | None = None
    """So many blocks, which leave their stamps in the arena."""


def kits(where: Device, arena: Arena) -> tuple[list[Kit], list[Line]]:
    """The frameworks that work here, tried once; and for each of the others the line that says why not."""
    found, failed = [], []
    for name in FRAMEWORKS:
        missing = frameworks.get(name).missing(where)
        if missing is not None:
            failed.append(without(name, "everything", NOT_RUN, missing))
            continue
        try:
            kit = _MAKERS[name](arena)
            for work in (kit.add_one, kit.spin, kit.fill, kit.copy, kit.blocks):
                if work is not None:
                    kit.wait(work(4096))
            arena.wait()
        except Exception as error:  # whatever it is, the other frameworks can still prove theirs
            failed.append(without(name, "everything", OFF, one_line(error)))
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
    block = 2048  # elements of a program: four accesses of 16 bytes a thread
    return Kit(
        "triton",
        arena.wait,
        add_one=lambda n: work_triton.add_one_kernel[(-(-n // block),)](arena.x, arena.out, n, BLOCK=block),
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
    """JAX has no way to spin. Its arrays alias the arena's; its results are its own."""
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
