"""Checks and counts the loads and stores of kernels in Triton's interpreter.

A pointer that is not masked must point into a tensor of the launch. Where a launch has tensors of int64, which may hold
addresses, a pointer into any other living tensor is right too. Import this only after `Adapter.prepare` of Triton, in
the interpreted mode.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

OWN_FOLDERS = (str(Path(triton.__file__).parent), str(Path(__file__).parent))
"""Code in these folders is not a kernel's, and neither is that of OWN_FILES."""
OWN_FILES = "_runtime/interpreter.py", "_runtime/faster.py", "_runtime/accesses.py"
NEAR_BYTES = 1 << 20
"""A pointer this close to a tensor was meant to be in it."""


class OutOfBoundsError(IndexError):
    """A kernel loads or stores through a pointer that is not in its tensors."""


@dataclass(frozen=True)
class Operand:
    """The memory of a tensor that a kernel gets: its first byte, and the one after its last."""

    name: str
    begin: int
    end: int


@dataclass
class Watch:
    """The present launch, and what launches have done so far."""

    kernel: str = ""
    operands: list[Operand] = field(default_factory=list)
    may_hold_addresses: bool = False
    loaded: int = 0
    """Elements that are not masked."""
    stored: int = 0
    masked: int = 0

    @property
    def masked_share(self) -> float | None:
        """The share of elements that masks leave out of loads and stores; None without any."""
        whole = self.loaded + self.stored + self.masked
        return self.masked / whole if whole else None

    def begin(self, kernel: str, arguments: dict[str, Any]) -> None:
        """Begin a launch with these arguments by name."""
        tensors = [(name, each) for name, value in arguments.items() for each in _tensors(value)]
        self.kernel, self.operands = kernel, [_operand(*each) for each in tensors if each[1].numel()]
        self.may_hold_addresses = any(tensor.dtype in (torch.int64, torch.uint64) for _, tensor in tensors)

    def access(self, program: tuple[int, ...], what: str, pointers: Any, mask: Any) -> None:
        """Check one load or store. Raises `OutOfBoundsError`."""
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses, cause = np.asarray(pointers.data), "is a mask missing, or an offset wrong?"
        if mask is not None:
            chosen = np.broadcast_to(np.asarray(mask.data, bool), addresses.shape)
            left_out = addresses.size - int(np.count_nonzero(chosen))
            self.masked += left_out
            cause = "its mask is true there" if left_out else cause
            addresses = addresses[chosen]
        if what == "loads":
            self.loaded += addresses.size
        else:
            self.stored += addresses.size
        if addresses.size and not self._is_within(int(addresses.min()), int(addresses.max()) + size):
            for address in map(int, addresses.ravel()):
                if not self._is_within(address, address + size):
                    self._judge(address, size, program, what, cause)

    def _is_within(self, begin: int, end: int) -> bool:
        return any(each.begin <= begin and end <= each.end for each in self.operands)

    def _judge(self, address: int, size: int, program: tuple[int, ...], what: str, cause: str) -> None:
        """Raise `OutOfBoundsError` with its likely cause, unless the address may have been read from a tensor."""
        if self.may_hold_addresses and any(each.begin <= address < each.end for each in _living()):
            return
        nearest = min(self.operands, key=lambda each: _distance(each, address), default=None)
        where = f"{self.kernel}: program {program}, {_line()}: {what}"
        if nearest is None or _distance(nearest, address) > NEAR_BYTES:
            raise OutOfBoundsError(
                f"{where} {size} bytes at {address:#x}, far out of bounds of all tensors of the launch"
            )
        index, count = (address - nearest.begin) // size, (nearest.end - nearest.begin) // size
        raise OutOfBoundsError(
            f"{where} index {index} of {nearest.name}, which has {count} elements of {size} bytes: {cause}"
        )


@contextmanager
def watched() -> Iterator[Watch]:
    """Within it, launches are checked and counted. An access out of bounds raises Triton's `InterpreterError`."""
    watch = Watch()
    kept = {name: getattr(InterpreterBuilder, name) for name in _ACCESSES}
    run = GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = inspect.signature(self.fn).parameters
        given = inspect.getcallargs(self.fn, *args, **{k: v for k, v in kwargs.items() if k in names})
        watch.begin(self.fn.__name__, given)
        return run(self, *args, **kwargs)

    for name, places in _ACCESSES.items():
        setattr(InterpreterBuilder, name, _watching(watch, kept[name], *places))
    GridExecutor.__call__ = launch
    try:
        yield watch
    finally:
        GridExecutor.__call__ = run
        for name, method in kept.items():
            setattr(InterpreterBuilder, name, method)


_ACCESSES: dict[str, tuple[str, tuple[int, str], tuple[int, str] | None]] = {
    "create_masked_load": ("loads", (0, "ptrs"), (1, "mask")),
    "create_masked_store": ("stores", (0, "ptrs"), (2, "mask")),
    "create_atomic_rmw": ("stores", (1, "ptr"), (3, "mask")),
    "create_atomic_cas": ("stores", (0, "ptr"), None),
}
"""Methods of the interpreter that all accesses go through, what they do, and place and name of pointers and mask."""


def _watching(
    watch: Watch, method: Callable[..., Any], what: str, pointers: tuple[int, str], mask: tuple[int, str] | None
) -> Callable[..., Any]:
    def call(self: Any, *operands: Any, **named: Any) -> Any:
        def given(place: int, name: str) -> Any:
            return operands[place] if place < len(operands) else named[name]

        watch.access(tuple(self.grid_idx), what, given(*pointers), None if mask is None else given(*mask))
        return method(self, *operands, **named)

    return call


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: itself, those of a tuple, the base of a descriptor."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "base"):
        yield from _tensors(value.base)


def _operand(name: str, tensor: torch.Tensor) -> Operand:
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Operand(name, tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size())


def _living() -> Iterator[Operand]:
    """All tensors of this process that are on the CPU."""
    for each in gc.get_objects():
        if type(each) is torch.Tensor and each.device.type == "cpu" and each.layout is torch.strided and each.numel():
            yield _operand("", each)


def _distance(operand: Operand, address: int) -> int:
    return max(operand.begin - address, address - operand.end, 0)


def _line() -> str:
    """File and line of the kernel that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(OWN_FOLDERS) or frame.f_code.co_filename.endswith(OWN_FILES)
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
