"""top_k: the k largest numbers of each row in descending order, and their indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES
from suite.problem import family, numbers, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (5, 264, 12)
"""Shape of most families: no multiple of a tile."""
SORTED = 4
"""One in so many numbers of a block is sorted at a time."""


def largest(x: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k largest numbers of each row in descending order, float64. NaN is larger than all others."""
    return x.double().sort(dim=1, descending=True).values[:, :k].contiguous()


def numbers_at(indices: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the numbers of rows x at flat `indices`, k for each row: float64, flat.

    An index outside of the row, or one that occurs before in it, stands for no number: NaN, or 0 where NaN is expected.
    """
    at = indices.reshape(len(x), -1).double()
    ordered, order = at.sort(dim=1, stable=True)
    repeated = torch.zeros_like(at, dtype=torch.bool)
    repeated.scatter_(1, order[:, 1:], ordered.diff(dim=1) == 0.0)
    found = (at >= 0.0) & (at < x.shape[1]) & ~repeated
    named = x.gather(1, at.where(found, 0.0).long()).double().reshape(-1)
    return named.where(found.reshape(-1), torch.where(expected.isnan(), 0.0, torch.nan))


def few(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Five different numbers: most of them occur many times in a row, the k-th largest too."""
    return (torch.randint(0, 5, shape, generator=source, device=source.device) * 0.75 - 1.5).to(numbers.dtype_of(case))


def equal(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """One number in each row."""
    return numbers.normals((shape[0], 1), case, source).expand(shape).contiguous()


def negative(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers below 0: a 0 in place of a missing number is larger."""
    return -numbers.normals(shape, case, source).abs() - 0.5


def ordered(descending: bool) -> numbers.Numbers:
    """Normal numbers in order in each row: the largest are neighbours."""

    def values(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
        return numbers.normals(shape, case, source).sort(dim=1, descending=descending).values.contiguous()

    return values


def minus_infinite(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, nine in ten replaced by -inf like masked logits: fewer than k are finite."""
    drawn = numbers.normals(shape, case, source)
    masked = torch.rand(shape, generator=source, device=source.device) < 0.9
    return drawn.masked_fill(masked, -torch.inf)


def many_nan(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, one in four replaced by NaN."""
    drawn = numbers.normals(shape, case, source)
    return drawn.masked_fill(torch.rand(shape, generator=source, device=source.device) < 0.25, torch.nan)


class TopK(Operation):
    rank = 67
    group = "rows"
    name = "top_k"
    formula = "the K largest numbers of each row in descending order, and their indices; equal ones in any order"
    dims = ("M", "N", "K")
    outputs = ("values", "indices")
    values_set_work = True
    sweep = tuple((64, 2**power, 64) for power in range(8, 19, 2))
    telling = (
        TellingCase("longest_row", (1, 65_793, 33), first=False),
        TellingCase("all_of_a_row", (1, 67, 67)),
        TellingCase("most", (2, 1500, 256), first=False),
        TellingCase("most_of_a_row", (2, 1500, 1031), first=False),
        TellingCase("one", (3, 600, 1)),
        TellingCase("ties_over_blocks", (1, 20_001, 40), "few", first=False),
    )
    large = (
        TellingCase("large", (4, 151_936, 50)),
        TellingCase("many_rows", (70_001, 3, 2)),
    )
    ragged = ((1, 1, 1), (5, 257, 3), (1, 2500, 17))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 9001, 8)),
        "empty": family.empty((0, 5, 2)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows(ODD),
        "broadcast": family.broadcast(ODD),
        "few": Family("five numbers, each many times: ties at the border", numbers.per_operand(few), shapes=(ODD,)),
        "equal": Family("one number in all places of a row", numbers.per_operand(equal), shapes=(ODD,)),
        "negative": Family("numbers below 0", numbers.per_operand(negative), shapes=(ODD,)),
        "ascending": Family("rows in ascending order", numbers.per_operand(ordered(False)), shapes=((2, 2056, 12),)),
        "descending": Family("rows in descending order", numbers.per_operand(ordered(True)), shapes=((2, 2056, 12),)),
        "subnormal": family.subnormal(ODD),
        "largest": family.large(ODD),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(ODD),
        "minus_infinity": Family(
            "all but a few of each row are -inf", numbers.per_operand(minus_infinite), shapes=((3, 264, 30),)
        ),
        "nan": family.nan(ODD),
        "many_nan": Family("many NaN: they are the largest", numbers.per_operand(many_nan), shapes=((2, 64, 40),)),
        "huge": family.huge((2**16 + 1, 2**15 + 8, 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: logits of 64 sequences and of one, over the words of three models; experts of 16384 tokens.

        The models are Llama 2 (32,000 words), Llama 3 (128,256) and Qwen 2.5 (151,936); experts as in DeepSeek V3.
        """
        if device_type != "cuda":
            return [self.case((9, 264, 8), dtype) for dtype in DTYPES]
        shapes = [(64, n, k) for n in (32_000, 128_256, 151_936) for k in (8, 50, 256)]
        shapes += [(1, 128_256, 50), (1, 151_936, 256), (16384, 256, 8)]
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case((64, 128_256, 50), "float16"), self.case((64, 128_256, 50), "float32")]

    def validate(self, dims: Mapping[str, int]) -> None:
        if not 1 <= dims["K"] <= dims["N"]:
            raise UsageError(f"--shape: K={dims['K']} must be from 1 to N={dims['N']}")

    def covered_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes with K at most N: the whole row where the row is shorter."""
        return {"M": (1, 3, 9), "N": (1, 31, 64, 257, 1024), "K": (1, 8, 31)}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        return (sizes["M"], sizes["N"], min(sizes["K"], sizes["N"]))

    def random_shape(self, size: Callable[[], int]) -> Shape:
        n = 1 + size() * 5
        return (size() % 5, n, 1 + size() % min(n, 20))

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape[:2],)

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"k": case["K"]}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return ((case["M"], case["K"]),) * 2

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, "int64")

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        return outputs.joined_dtype(self.output_dtypes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the values of some rows, and then their indices, which are judged by the numbers in their places.

        Both are exact. Equal numbers may have their indices in any order; an index may occur once.
        """
        (x,), (m, n, k) = inputs, case.shape
        together = rows_per_block(n, SORTED)
        for start in range(0, m, together):
            rows = x[start : start + together]
            value = largest(rows, k).view(-1)
            exact = torch.zeros_like(value)
            for begin, named in ((0, None), (m * k, partial(numbers_at, x=rows, expected=value))):
                index = (slice(begin + start * k, begin + start * k + value.numel()),)
                yield Truth(index, value, exact, dtype=case.dtype, named=named)

    def flops(self, case: Case) -> int:
        """Count a comparison for each number."""
        return case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count six arrays of 8 bytes of the sorted rows, of numbers and their order, and ten of their results."""
        m, n, k = case.shape
        rows = min(m, rows_per_block(n, SORTED))
        return 8 * rows * (6 * n + 10 * k)


OP = TopK()
