"""An operation that several processes compute together. Each process has a rank, a GPU, and inputs of its own.

The sizes of a case are those of one rank's inputs. `Case.ranks` is the number of ranks; a case of one rank is an
ordinary problem, so the declarations of these operations are tested as those of all others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from suite.problem.case import Case
from suite.problem.operation import Operation

if TYPE_CHECKING:
    import torch

    from suite.problem.truth import Truth

Shard = tuple["torch.Tensor", ...]
"""The inputs of one rank, in the order of the signature."""


class RankedOperation(Operation):
    """An operation over `Case.ranks` processes, with `over_ranks = True`. Its functions take the keyword `group`."""

    replicated: ClassVar[tuple[int, ...]] = ()
    """Positions of the operands that are the same on all ranks."""

    @abstractmethod
    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield the float64 result of one rank with its error bound, in pieces. shards: the inputs of every rank."""

    @abstractmethod
    def transfer_bytes(self, case: Case) -> int:
        """Return the bytes that each rank must send, and receive, at least."""

    def inputs_of_rank(self, case: Case, seed: int, rank: int, device: torch.device) -> Shard:
        """Draw the inputs of one rank. Replicated operands are those of the first."""
        inputs = self.make_inputs(case, seed_of(seed, rank, case.ranks), device)
        if rank == 0 or not self.replicated:
            return inputs
        first = self.make_inputs(case, seed_of(seed, 0, case.ranks), device)
        return tuple(first[i] if i in self.replicated else each for i, each in enumerate(inputs))

    def truth(self, inputs: Shard, case: Case) -> Iterator[Truth]:
        """Yield the result of a single rank."""
        return self.truth_of_rank((inputs,), 0, case)


def seed_of(seed: int, rank: int, ranks: int) -> int:
    """The seed of one rank's inputs: different for all ranks and seeds."""
    return (seed * ranks + rank) % 2**63
