"""Layouts: for each operand its place in memory, by words of KINDS with slashes between them: `transposed/padded`.

Every operation takes them, as families of inputs or as a part of one: `--inputs nan+stepped/dense`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from suite.problem import far, placement
from suite.problem.shape import Shape

Place = Callable[["torch.Tensor"], "torch.Tensor"]


def _reversed(operand: torch.Tensor) -> torch.Tensor:
    """Store the axes in the opposite order."""
    axes = tuple(reversed(range(operand.ndim)))
    return operand.permute(axes).contiguous().permute(axes)


KINDS: dict[str, Place] = {
    "dense": lambda operand: operand,
    "transposed": lambda operand: placement.transposed(operand, 0) if operand.ndim > 1 else operand,
    "reversed": _reversed,
    "padded": lambda operand: placement.gapped_rows(operand, 0),
    "halved": lambda operand: placement.halved_rows(operand, 0),
    "stepped": lambda operand: placement.stepped(operand, 0),
    "misaligned": lambda operand: placement.misaligned(operand, 0),
    "repeated": lambda operand: placement.one_element(operand, 0),
    **{f"repeated{axis}": partial(placement.repeated, position=axis) for axis in range(4)},
    **{f"far{axis}": partial(far.place, axis=axis) for axis in range(4)},
}
"""Dense; the last two axes swapped; all axes in the opposite order; a gap of one element after each row, or of a row;
every third column of rows far apart, with offsets of more than 17 bits; one element off a multiple of 16 bytes; the
first element, or the first slice of an axis, with strides of 0; slices of an axis with offsets of more than 31 bits."""

BY_AXES = {1: ("misaligned", "stepped"), 2: ("transposed", "padded", "stepped", "misaligned")}
"""Kinds that differ for an operand with this number of axes; an operand with more axes has all kinds."""
PLACEMENTS = (
    placement.as_drawn,
    placement.transposed,
    placement.strided,
    placement.stepped,
    placement.misaligned,
    placement.gapped_rows,
    placement.repeated,
)
"""The placements of whole families that these kinds include, the plain one first."""
REPEATED = "repeated"
FAR = "far"


def known(text: str) -> bool:
    """True if all words of a layout are KINDS."""
    return all(kind in KINDS for kind in text.split("/"))


def is_far(inputs: str) -> bool:
    """True for inputs with an operand whose elements lie far apart."""
    return any(word.startswith(FAR) and word in KINDS for word in inputs.replace("+", "/").split("/"))


def place(text: str) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return the placement of an operand, by its position, for a layout."""
    kinds = text.split("/")
    return lambda operand, position: KINDS[kinds[position % len(kinds)]](operand)


def stored(text: str) -> Callable[[Shape, int], int]:
    """Return the number of elements in memory of an operand's shape, by its position, for a layout."""
    kinds = text.split("/")

    def elements(shape: Shape, position: int) -> int:
        kind = kinds[position % len(kinds)]
        if kind == REPEATED:
            return min(1, math.prod(shape))
        axis = int(kind.removeprefix(REPEATED)) if kind.startswith(REPEATED) else len(shape)
        return math.prod(shape) // (max(shape[axis], 1) if axis < len(shape) else 1)

    return elements


def rotations(axes: Sequence[int]) -> list[str]:
    """Return layouts in which each operand takes each kind in turn, no two of them the same at a time.

    axes: the number of axes of each operand.
    """
    kinds = [(*BY_AXES.get(count, (*BY_AXES[2], "reversed")), "dense") for count in axes]
    turns = range(max(map(len, kinds), default=0))
    spread = ["/".join(each[(turn + i) % len(each)] for i, each in enumerate(kinds)) for turn in turns]
    return [each for each in dict.fromkeys(spread) if set(each.split("/")) != {"dense"}]


def repetitions(axes: Sequence[int]) -> list[str]:
    """Return layouts in which one operand is repeated along one axis: all operands, all axes."""
    return [repetition(len(axes), {operand: axis}) for operand, count in enumerate(axes) for axis in range(count)]


def repetition(operands: int, axes: Mapping[int, int]) -> str:
    """Return the layout in which some operands are repeated, each along one axis, given by the operand's position."""
    return "/".join(f"{REPEATED}{axes[each]}" if each in axes else "dense" for each in range(operands))
