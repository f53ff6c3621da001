"""Views whose slices lie so far apart that 32 bits do not hold the offset of the last: kernels with `int` offsets fail.

Only the slices are written and copied. On a CPU the memory between them is an address range without pages, so that a
view takes little memory; on a GPU it takes all of its range.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from functools import cache

import torch

REACH = 2**31
"""Least offset of the last slice, in elements."""
MOST_SLICES = 512
"""Longest axis whose slices are placed apart: each takes pages of its own."""
GAP = 2**20
"""Least gap between slices that are copied one by one, in elements."""
ALIGNMENT = 64
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


@cache
def is_cheap(device_type: str) -> bool:
    """True if addresses take no memory: on a CPU, unless the system counts them as memory (`vm.overcommit_memory`)."""
    if device_type != "cpu":
        return False
    try:
        reserve(32 * REACH, torch.device("cpu"))
    except OSError:
        return False
    return True


def place(operand: torch.Tensor, axis: int) -> torch.Tensor:
    """Place the slices of an axis far apart, each dense. Keeps an operand whose axis is missing or too long."""
    if axis >= operand.ndim or not 1 < operand.shape[axis] <= MOST_SLICES or not operand.numel():
        return operand
    size, inner = operand.shape[axis], operand.numel() // operand.shape[axis]
    step = ALIGNMENT * math.ceil(max(REACH / (size - 1), inner + GAP) / ALIGNMENT)
    rest = [*operand.shape[:axis], *operand.shape[axis + 1 :]]
    strides = [math.prod(rest[i + 1 :]) for i in range(len(rest))]
    strides.insert(axis, step)
    memory = reserve(((size - 1) * step + inner) * operand.element_size(), operand.device)
    view = torch.empty(0, dtype=operand.dtype, device=operand.device)
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


def reserve(nbytes: int, device: torch.device) -> torch.Tensor:
    """Return new memory of that many bytes. On a CPU a page takes memory when it is first written."""
    if device.type != "cpu":
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page for each slice would take 2 MiB
    return torch.frombuffer(memory, dtype=torch.uint8)


def memory_like(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """Return new memory for a copy of a tensor and of what lies between its elements."""
    if slices(tensor) is not None:
        return reserve(nbytes, tensor.device)
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
