"""The problem of one rank: its own inputs and buffers, and the truth of its result from the inputs of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from suite.checking.memory import copies_with_bands
from suite.checking.problem import Problem
from suite.numerics import subnormals
from suite.problem.ranked import RankedOperation

if TYPE_CHECKING:
    from suite.problem.case import Case
    from suite.problem.truth import Truth


class RankProblem(Problem):
    """Two draws of a rank's inputs. Each rank also draws the inputs of the others, from the same seed, for the
    truth."""

    def __init__(self, case: Case, seed: int, device: torch.device, rank: int) -> None:
        self.rank, self.seed = rank, seed
        super().__init__(case, seed, device)

    def _draw(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        assert isinstance(self.op, RankedOperation)
        with subnormals.preserved(device):
            return copies_with_bands(self.op.inputs_of_rank(case, seed, self.rank, device))

    def _computed(self, draw: int) -> Iterator[Truth]:
        case = self.op.second_case(self.case) if draw else self.case
        yield from self.truth_of(case, self.seed + draw, self.draws[draw])

    def truth_of(self, case: Case, seed: int, own: tuple[torch.Tensor, ...]) -> Iterator[Truth]:
        """The truth of this rank's result, if the inputs are drawn from `seed`. own: those of this rank."""
        assert isinstance(self.op, RankedOperation)
        shards = [
            own if rank == self.rank else self.op.inputs_of_rank(case, seed, rank, self.device)
            for rank in range(case.ranks)
        ]
        yield from self.op.truth_of_rank(shards, self.rank, self.case)
