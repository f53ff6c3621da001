"""The inputs of a case on a device, their exact results, and the buffers that the checked calls read."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch

from suite import ops
from suite.checking.memory import copies_with_bands, copies_with_layout, whole_storage
from suite.numerics import subnormals
from suite.problem import outputs

if TYPE_CHECKING:
    from suite.checking.judge import Verdict
    from suite.numerics.weak_bound import WeakBound
    from suite.problem.case import Case
    from suite.problem.truth import Truth

TRUTH_BYTES = 2 * 8
"""Bytes of the truth and the bound of one element."""
KEPT_BYTES = 1 << 31
"""Limit in bytes for the truths of both draws to be kept for the next implementation. On a GPU the limit is an eighth
of its free memory if that is more."""


class Right(NamedTuple):
    """A result that is right, and the verdict on it."""

    output: torch.Tensor
    verdict: Verdict


class Problem:
    """Two draws of a case's inputs on `device`, from `seed` and `seed + 1`. All implementations get the same.

    `draws` holds a tuple of tensors for each draw. `buffers` holds tensors of the same layout in memory of their own,
    which every call reads. All of them lie between guard bands.
    """

    def __init__(self, case: Case, seed: int, device: torch.device) -> None:
        self.case = case
        self.op = ops.operation(case)
        cases = case, self.op.second_case(case)
        self.draws = tuple(self._draw(each, seed + i, device) for i, each in enumerate(cases))
        self.device = self.draws[0][0].device  # includes the device index, as results have it
        self.buffers = copies_with_layout(self.draws[0])
        self._truths: dict[int, list[Truth]] = {}
        self.right: dict[int, Right] = {}
        """For each draw a result that is right, if it is small enough to keep."""
        self._weak: list[WeakBound] = []

    def _draw(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        with subnormals.preserved(device):
            return copies_with_bands(self.op.make_inputs(case, seed, device))

    def draw(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Draw other inputs of the case, with the layout of the first draw."""
        return self._draw(self.case, seed, self.device)

    def with_buffers(self, allocate: Callable[[int, int], torch.Tensor]) -> Problem:
        """Return the same problem with buffers of its own, in memory that `allocate` returns."""
        other = copy.copy(self)
        other.buffers = copies_with_layout(self.draws[0], allocate)
        return other

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.op.output_shape(self.case)

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.op.output_shapes(self.case)

    @property
    def results(self) -> tuple[tuple[str, int], ...]:
        """The name of each result and the index in the joined output at which it begins."""
        names = self.op.outputs or ("",)
        return tuple(zip(names, outputs.starts(self.output_shapes), strict=True))

    def position(self, at: tuple[int, ...]) -> str:
        """Turn an index of the result into words."""
        shapes = map(outputs.judged_shape, self.output_shapes, self.output_dtypes)
        return outputs.located(at, self.op.outputs, tuple(shapes))

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        return self.op.output_dtypes(self.case)

    @property
    def output_dtype(self) -> str:
        return self.op.output_dtype(self.case)

    def present(self, draw: int) -> None:
        """Copy the inputs of a draw to the buffers, including the memory between and around strided elements."""
        for buffer, given in zip(self.buffers, self.draws[draw], strict=True):
            whole_storage(buffer).copy_(whole_storage(given))

    def changed(self, draw: int) -> list[int]:
        """Return the positions of the buffers that differ from what `present(draw)` copied to them."""
        pairs = zip(self.buffers, self.draws[draw], strict=True)
        return [
            i for i, (buffer, given) in enumerate(pairs) if not torch.equal(whole_storage(buffer), whole_storage(given))
        ]

    def truth(self, draw: int) -> Iterable[Truth]:
        """Return the exact result of a draw with its error bounds, in pieces. It is computed once if it is small enough
        to keep."""
        if draw not in self._truths:
            free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 0
            if len(self.draws) * math.prod(self.output_shape) * TRUTH_BYTES > max(KEPT_BYTES, free // 8):
                return self._computed(draw)
            self._truths[draw] = list(self._computed(draw))
        return self._truths[draw]

    def keeps_right(self, output: torch.Tensor) -> bool:
        """True if an output is contiguous, and small enough for those of both draws to be kept."""
        room = torch.cuda.mem_get_info(self.device)[0] // 16 if self.device.type == "cuda" else KEPT_BYTES // 8
        return len(self.draws) * output.numel() * output.element_size() <= room and bool(output.is_contiguous())

    def _computed(self, draw: int) -> Iterator[Truth]:
        """Compute the truth of a draw, and note a weak bound."""
        for piece in self.op.exact_truth(self.draws[draw], self.case):
            self._weak += [piece.weak] if piece.weak is not None else []
            yield piece

    @property
    def weak_bound(self) -> WeakBound | None:
        """The reason why the bound of a draw accepts wrong results; None if no bound computed so far does."""
        return next(iter(self._weak), None)


class Problems(Mapping[str, Problem]):
    """The problems of named cases, each made when it is first asked for."""

    def __init__(self, cases: Mapping[str, Case], make: Callable[[Case], Problem]) -> None:
        self._cases, self._make = cases, make
        self._made: dict[str, Problem] = {}

    def __getitem__(self, name: str) -> Problem:
        if name not in self._made:
            self._made[name] = self._make(self._cases[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cases)

    def __len__(self) -> int:
        return len(self._cases)
