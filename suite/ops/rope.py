"""rope: the rotary position embedding of queries and keys; each pair of features is rotated by its token's angle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.bounds import limit
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.problem import family, numbers, outputs
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

BASE = 10_000.0
"""The angle of pair i is position * BASE^(-i / (D/2)), as in the paper and in most models."""
POSITIONS = 4096
"""The first token's position is below this number."""
ODD = (2, 5, 3, 1, 48)
"""Shape of most families: sizes that are multiples of no tile, and fewer heads of keys."""


def parts(x: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first and the second numbers of all pairs, as views."""
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if layout == "halves" else (x[..., 0::2], x[..., 1::2])


def joined(first: torch.Tensor, second: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the array whose `parts` are these two."""
    if layout == "halves":
        return torch.cat([first, second], dim=-1)
    return torch.stack([first, second], dim=-1).flatten(-2)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str) -> torch.Tensor:
    """Return x, (..., S, H, D), with each pair (a, b) as (a cos - b sin, b cos + a sin); cos and sin are (S, D/2)."""
    (a, b), c, s = parts(x, layout), cos[:, None], sin[:, None]
    return joined(a * c - b * s, b * c + a * s, layout)


def sizes_of_products(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the sum of the sizes of the two products in each result."""
    (a, b), c, s = parts(x.abs(), layout), cos.abs()[:, None], sin.abs()[:, None]
    return joined(a * c + b * s, b * c + a * s, layout)


def rope_error(products: torch.Tensor) -> torch.Tensor:
    """Return the largest error before the rounding to the output's type.

    In float32 each of the two products is rounded; in 16 bits they are exact, and their sum is rounded. Products may be
    subnormal.
    """
    return products * unit_roundoff("float32") + 2.0 * half_smallest("float32")


def rope_limit(products: torch.Tensor, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound of a cos - b sin in float32, rounded once. products: see `sizes_of_products`."""
    return limit(rope_error(products), value, dtype)


def with_angles(values: numbers.Values) -> numbers.Values:
    """Draw q and k by `values`; cos and sin of a model's angles, from a random position on."""

    def drawn(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        q, k = values(shapes[:2], case, source)
        tokens, half = shapes[2]
        device = source.device
        first = 1 + numbers.index_below(POSITIONS, source)
        positions = torch.arange(first, first + tokens, dtype=torch.float64, device=device)
        powers = torch.arange(half, dtype=torch.float64, device=device) / max(half, 1)
        angles = positions[:, None] * BASE**-powers
        return q, k, angles.cos().to(q.dtype), angles.sin().to(q.dtype)

    return drawn


ANGLES = with_angles(family.NORMALS)


def angle_family(kind: Family) -> Family:
    """The family with cos and sin of angles; its numbers are those of q and k."""
    return replace(kind, values=with_angles(kind.values))


class Rope(Operation):
    rank = 33
    group = "elementwise"
    name = "rope"
    formula = "(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k, by the angle of its token"
    dims = ("B", "S", "H", "H_kv", "D")
    outputs = ("q", "k")
    options = (
        Option("layout", ("halves", "pairs"), "a pair is i and i + D/2 (halves), or 2i and 2i + 1 (pairs)"),
        Option("direction", ("forward", "inverse"), "rotate, or rotate back (the gradient)"),
    )
    sizes: ClassVar = {"B": (1, 2), "S": (1, 31, 64, 257), "H": (1, 3, 32), "H_kv": (1, 2, 8), "D": (2, 38, 64, 128)}
    sweep = tuple((1, 2**k, 32, 8, 128) for k in range(0, 15, 2))
    telling = (
        TellingCase("wide_heads", (1, 3, 2, 1, 1032)),
        TellingCase("D=2048", (1, 3, 2, 1, 2048), first=False),
    )
    large = (TellingCase("large", (1, 4100, 8, 1, 72)), TellingCase("many_tokens", (1, 70_001, 2, 1, 8)))
    ragged = ((1, 1, 1, 1, 2), (3, 17, 5, 2, 66))
    families: ClassVar = {
        "normal": Family("normal numbers, cos and sin of a model's angles; the operation's default sizes", ANGLES),
        "sizes": angle_family(family.sizes(*ragged)),
        "empty": angle_family(family.empty((0, 3, 2, 1, 8), (2, 0, 2, 1, 8), (2, 3, 0, 0, 8))),
        "strided": angle_family(family.strided_views(ODD)),
        "misaligned_rows": angle_family(family.misaligned_rows((1, 5, 3, 2, 64))),
        "nan": angle_family(family.nan(ODD)),
        "any_factors": Family("cos and sin are any numbers, not of one angle", family.NORMALS, shapes=(ODD,)),
        "large_factors": family.spread(ODD, 0, 0, 20, 20),
        "range": family.spread(ODD, 20, -20, values=ANGLES),
        "huge": replace(family.huge((2, 2**16 + 1, 128, 1, 130)), values=ANGLES),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: a model with 32 and 8 heads of 128, in both layouts and back; heads of 64; other types."""
        if device_type != "cuda":
            return [self.case((1, 40, 4, 2, 64), dtype) for dtype in DTYPES]
        shape = (4, 4096, 32, 8, 128)
        cases = [self.case(shape, "bfloat16"), self.case(shape, "bfloat16", layout="pairs")]
        cases.append(self.case(shape, "bfloat16", direction="inverse"))
        cases.append(self.case((16, 2048, 16, 16, 64), "bfloat16"))
        return [*cases, self.case(shape, "float16"), self.case((2, *shape[1:]), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        b, s, h, h_kv, d = case.shape
        return ((b, s, h, d), (b, s, h_kv, d), (s, d // 2), (s, d // 2))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"layout": case.option("layout", "halves"), "inverse": _is_inverse(case)}

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["D"] % 2:
            raise UsageError(f"rope: D must be even; got D={dims['D']}")

    def random_shape(self, size: Callable[[], int]) -> Shape:
        b, s, h, h_kv, d = (size() for _ in self.dims)
        return (b % 4, s, h % 8, h_kv % 4, 2 * d)

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return self.operands(case)[:2]

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of q, then of k; a block is contiguous in the joined results, and cuts no head."""
        layout, sign = self.option_values(case)["layout"], -1.0 if _is_inverse(case) else 1.0
        count = self.output_shape(case)[0]
        for begin, x in zip(outputs.starts(self.output_shapes(case)), inputs[:2], strict=True):
            for index in blocks(tuple(x.shape)):
                cos, sin = inputs[2][index[1]].double(), inputs[3][index[1]].double() * sign
                wide = x[index].double()
                value = rotated(wide, cos, sin, layout).reshape(-1)
                products = sizes_of_products(wide, cos, sin, layout).reshape(-1)
                del wide
                start = begin + _position(index, tuple(x.shape))
                at = sample((value.numel(),), value.device)
                noise = Noise(rope_error(products[at]), torch.zeros_like(products[at]), count)
                bound = rope_limit(products, value, case.dtype)
                del products
                yield Truth((slice(start, start + value.numel()),), value, bound, noise)
                del value, bound

    def flops(self, case: Case) -> int:
        """Count two products and a sum for each result."""
        return 3 * self.output_shape(case)[0]

    def workspace_bytes(self, case: Case) -> int:
        q, k, angles, _ = self.operands(case)
        return max(block_bytes(q, 8), block_bytes(k, 8)) + block_bytes(angles, 5)


def _is_inverse(case: Case) -> bool:
    return bool(case.option("direction") == "inverse")


def _position(index: tuple[slice, ...], shape: Shape) -> int:
    """Return the position in row-major order of the first element of a block."""
    found = 0
    for part, size in zip(index, shape, strict=True):
        found = found * size + part.start
    return found


OP = Rope()
