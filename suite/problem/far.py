"""Views whose slices lie so far apart that 32 bits do not hold the offset of the last: kernels with `int` offsets fail.

Only the slices are written and copied, so that a view takes little memory. On a CPU the memory between them is an
address range without pages. On a GPU all addresses map one block (`suite/problem/ring.py`), in which each slice has a
place of its own.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from functools import cache

import torch

from suite.problem import ring

REACH = 2**31
"""Least offset of the last slice, in elements."""
MOST_SLICES = 512
"""Longest axis whose slices are placed apart: each takes pages of its own."""
GAP = 2**20
"""Least gap between slices that are copied one by one, in elements."""
ALIGNMENT = 64
BESIDE = 1024
"""Elements between two slices in the block of a GPU, so that a tile beyond the end of a slice holds NaN."""
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def is_cheap(device_type: str) -> bool:
    """True if addresses take no memory. A process that has not used the GPU yet assumes it.

    On a CPU the system may count them as memory (`vm.overcommit_memory`); a driver may not map a block twice.
    """
    if device_type == "cuda":
        return not torch.cuda.is_initialized() or ring.is_available(torch.device("cuda", torch.cuda.current_device()))
    return device_type == "cpu" and _reserves_without_memory()


@cache
def _reserves_without_memory() -> bool:
    try:
        reserve(32 * REACH, torch.device("cpu"), 0)
    except OSError:
        return False
    return True


def place(operand: torch.Tensor, axis: int) -> torch.Tensor:
    """Place the slices of an axis far apart, each dense. Keeps an operand whose axis is missing or too long."""
    if axis >= operand.ndim or not 1 < operand.shape[axis] <= MOST_SLICES or not operand.numel():
        return operand
    size, inner = operand.shape[axis], operand.numel() // operand.shape[axis]
    apart, period = _apart(inner), block_bytes(size, inner, operand.element_size()) // operand.element_size()
    step = apart + period * math.ceil((max(REACH / (size - 1), inner + GAP) - apart) / period)
    rest = [*operand.shape[:axis], *operand.shape[axis + 1 :]]
    strides = [math.prod(rest[i + 1 :]) for i in range(len(rest))]
    strides.insert(axis, step)
    view = torch.empty(0, dtype=operand.dtype, device=operand.device)
    memory = reserve(((size - 1) * step + inner) * view.element_size(), view.device, period * view.element_size())
    view.set_(memory.untyped_storage(), 0, operand.shape, strides)
    return view.copy_(operand)


def slices(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the slices that lie far apart, each with the gaps inside of it, as a view; None if none lie far apart."""
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    span, far = 1 + sum(stride * (size - 1) for stride, size in axes), list[tuple[int, int]]()
    for stride, size in axes:
        inner = span - stride * (size - 1)
        if size < 2 or stride - inner < GAP:
            break
        far.append((stride, size))
        span = inner
    if not far or not tensor.numel():
        return None
    return tensor.as_strided([*(size for _, size in far), span], [*(stride for stride, _ in far), 1])


def block_bytes(size: int, inner: int, element_bytes: int) -> int:
    """Return the period in bytes of a view's addresses on a GPU. size, inner: number and length of slices.

    The step of a view is a multiple of this period plus the distance of two slices in the block, so that slices follow
    each other there.
    """
    return ring.block_bytes(size * _apart(inner) * element_bytes)


def _apart(inner: int) -> int:
    """Return the distance in elements at which slices of `inner` elements begin in the block."""
    return ALIGNMENT * math.ceil(inner / ALIGNMENT) + BESIDE


def block_of(tensor: torch.Tensor) -> int:
    """Return the bytes of the block of a tensor that `place` has placed; 0 for another one."""
    found = slices(tensor)
    if found is None or found.ndim != 2:
        return 0
    (size, inner), step = found.shape, found.stride(0)
    block = block_bytes(size, inner, tensor.element_size())
    return block if (step - _apart(inner)) * tensor.element_size() % block == 0 else 0


def reserve(nbytes: int, device: torch.device, block: int) -> torch.Tensor:
    """Return new memory of that many bytes. On a CPU a page takes memory when it is first written.

    block: the memory behind all addresses on a GPU, in bytes.
    """
    if device.type != "cpu":
        return ring.reserve(nbytes, block, device)
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page for each slice would take 2 MiB
    return torch.frombuffer(memory, dtype=torch.uint8)


def memory_like(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """Return new memory for a copy of a tensor and of what lies between its elements."""
    block = block_of(tensor)
    if block:
        return reserve(nbytes, tensor.device, block)
    return torch.empty(nbytes, dtype=torch.uint8, device=tensor.device)


def layouts(axes: Sequence[int], word: str) -> list[str]:
    """Return layouts in which every operand has an axis of far slices. Each axis has its turn.

    The first layout keeps the last axis of each operand dense.

    axes: the number of axes of each operand. word: begins the name of the layout of an operand; its axis follows.
    """
    rows = "/".join(f"{word}0" if count > 1 else "dense" for count in axes)
    turns = range(max(axes, default=0))
    turned = ["/".join(f"{word}{(turn + i) % max(count, 1)}" for i, count in enumerate(axes)) for turn in turns]
    return list(dict.fromkeys((rows, *turned) if max(axes, default=0) > 1 else turned))
