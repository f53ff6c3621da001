"""Describes where the wrong elements of a result are: `[64:65, 0:64]`, `dq[0:1, 0:2, 0:33, 80:128]`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from suite.checking.survey import FULL, Survey
from suite.problem.shape import Shape


def place(found: Survey, wrong: torch.Tensor, names: Sequence[str], shapes: Sequence[Shape]) -> tuple[str, bool]:
    """Return the place in words, and true if nearly all elements of that place are wrong.

    wrong: of the examined part. names, shapes: of the results if there are several.
    """
    if found.wrong == found.total:
        return "the whole result", True
    if names and wrong.numel() == found.total:
        boxes = _boxes(wrong, names, shapes)
        if boxes:
            return " and ".join(boxes), True
    elif found.is_box:
        return _box("", found.begins, found.ends), True
    return f"{100 * found.wrong / found.total:.3g}% of the result", False


def _boxes(wrong: torch.Tensor, names: Sequence[str], shapes: Sequence[Shape]) -> list[str]:
    """Return the box of the wrong elements in each of several results; empty if a box has many right ones."""
    found = []
    for name, shape, part in zip(names, shapes, wrong.split([math.prod(shape) for shape in shapes]), strict=True):
        places = part.view(shape).nonzero()
        if len(places):
            begins, ends = places.amin(0).tolist(), (places.amax(0) + 1).tolist()
            if len(places) < FULL * math.prod(end - begin for begin, end in zip(begins, ends, strict=True)):
                return []
            found.append(name if tuple(ends) == shape and not any(begins) else _box(name, begins, ends))
    return found


def _box(name: str, begins: Sequence[int], ends: Sequence[int]) -> str:
    return f"{name}[{', '.join(f'{begin}:{end}' for begin, end in zip(begins, ends, strict=True))}]"
