"""What an operation is: its sizes, inputs, float64 truth, error bound, flops and bytes.

One subclass of `Operation` per file in `suite/ops/`, instantiated there as `OP`. Everything that depends on
the operation is asked of it; nothing else in the tree knows a shape, a reference or a tolerance.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suite.core.errors import UsageError

if TYPE_CHECKING:
    import torch

    from suite.numerics.check import Truth

DTYPES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Element types and their bytes: those of every operation and every implementation."""

DTYPES_BEYOND: dict[str, int] = {"float8_e4m3fn": 1}
"""Those of the operations, and of the implementations, that say so. A case has one only if it is asked for by name."""

OUTPUT_DTYPES: dict[str, str] = {"float8_e4m3fn": "bfloat16"}
"""Where it is not the inputs' own."""

PRECISIONS: dict[str, str] = {
    "ieee": "products and sums in float32 (products of 16-bit inputs are exact there)",
    "tf32": "products of inputs rounded to tf32 (11 significant bits), sums in float32",
    "promoted": "float8: sums of at most 128 products by a tensor core, which keeps 14 bits; these added in float32",
    "fast": "float8: all sums by a tensor core",
}


@dataclass(frozen=True)
class Case:
    """One problem: an operation, a size, a dtype, an arithmetic, a family of inputs.

    `causal` and `layout` are None where meaningless.
    """

    operation: str
    dims: tuple[tuple[str, int], ...]
    dtype: str = "float32"
    precision: str = "ieee"
    causal: bool | None = None
    layout: str | None = None
    inputs: str = "normal"

    def __getitem__(self, dim: str) -> int:
        return dict(self.dims)[dim]

    @property
    def label(self) -> str:
        """The column `case`: `M=512,N=512,K=512`, and what differs from the plain problem: `,causal`, `,inputs=nan`."""
        parts = [f"{name}={size}" for name, size in self.dims]
        if self.causal:
            parts.append("causal")
        if self.layout not in (None, "nn"):
            parts.append(f"layout={self.layout}")
        if self.inputs != "normal":
            parts.append(f"inputs={self.inputs}")
        return ",".join(parts)

    @property
    def element_bytes(self) -> int:
        return (DTYPES | DTYPES_BEYOND)[self.dtype]

    @property
    def output_dtype(self) -> str:
        return OUTPUT_DTYPES.get(self.dtype, self.dtype)

    @property
    def output_bytes(self) -> int:
        """Of one element of the output."""
        return (DTYPES | DTYPES_BEYOND)[self.output_dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.dims)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        dims = tuple((str(name), int(size)) for name, size in data["dims"])
        return cls(**{**data, "dims": dims})


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Inputs of one kind. What `ops/_families.py` draws and lays out, an operation declares once, in `families`."""

    about: str
    """What they are, in one line; `list` shows it."""
    values: Callable[[tuple[Shape, ...], Case, torch.Generator], tuple[torch.Tensor, ...]]
    """Draws the operands, dense and row-major, in the case's dtype."""
    place: Callable[[torch.Tensor, int], torch.Tensor] = lambda operand, position: operand
    """Puts the operand at this position of the signature into memory: a tensor of the same shape."""
    stored: Callable[[Shape, int], int] = lambda shape, position: math.prod(shape)
    """Different elements that an operand of this shape and position then has."""
    shapes: tuple[Shape, ...] = ()
    """Sizes to show them at where none are given; none here means the operation's default cases."""
    layouts: tuple[str | None, ...] = (None,)
    causal: tuple[bool, ...] = (False, True)
    dtypes: tuple[str, ...] = tuple(DTYPES)
    needs_gpu: bool = False


class Operation(ABC):
    """One operation. Shapes are named by `dims`, in the order of the signature."""

    name: ClassVar[str]
    formula: ClassVar[str]
    """The definition in one line; `list` shows it."""
    dims: ClassVar[tuple[str, ...]]
    causal: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = ()
    dtypes_beyond: ClassVar[tuple[str, ...]] = ()
    """Those of DTYPES_BEYOND that it has."""
    ragged: ClassVar[tuple[Shape, ...]]
    """Sizes of one, primes, one off a tile: those of the family `sizes`."""
    families: ClassVar[Mapping[str, Family]]
    """Kinds of inputs by name: `normal`, and those that break kernels."""
    sweep: ClassVar[tuple[tuple[int, ...], ...]]
    """Sizes from tiny to large, in ascending order."""

    @abstractmethod
    def default_cases(self, device_type: str) -> list[Case]:
        """What `compare` runs when no shape is given. Small on a CPU, where kernels are interpreted or emulated."""

    @abstractmethod
    def operands(self, case: Case) -> tuple[Shape, ...]:
        """The shapes of the inputs, in the order of the signature."""

    @abstractmethod
    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """The float64 result with its error bound, in pieces that fit in memory, computed from the rounded inputs."""

    @abstractmethod
    def output_shape(self, case: Case) -> tuple[int, ...]: ...

    @abstractmethod
    def flops(self, case: Case) -> int:
        """Arithmetic the definition asks for, counted once."""

    @abstractmethod
    def workspace_bytes(self, case: Case) -> int:
        """What computing the truth takes on the device beyond inputs and output."""

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The inputs of the case's family on `device`, in its dtype and layout. They may be views of larger arrays."""
        import torch

        family = self.families[case.inputs]
        source = torch.Generator(device).manual_seed(seed)
        drawn = family.values(self.operands(case), case, source)
        letters = case.layout or "n" * len(drawn)
        return tuple(
            family.place(operand.mT.contiguous(), position).mT if letter == "t" else family.place(operand, position)
            for position, (operand, letter) in enumerate(zip(drawn, letters, strict=True))
        )

    def second(self, case: Case) -> Case:
        """The case whose inputs the second call of a check gets: the same shapes, from a family that may show more."""
        return case

    def bytes(self, case: Case) -> int:
        """The least traffic to memory: every element of every input read once, the output written once."""
        stored = self.families[case.inputs].stored
        inputs = sum(stored(shape, position) for position, shape in enumerate(self.operands(case)))
        return inputs * case.element_bytes + self._output_bytes(case)

    def arguments(self, case: Case) -> dict[str, Any]:
        """Keyword arguments of the call."""
        return {}

    def precisions(self, dtype: str) -> tuple[str, ...]:
        """The arithmetics a case of this dtype may ask for, the plain one first."""
        return ("ieee",)

    def plain_layout(self, dtype: str) -> str | None:
        """The layout of a case of this dtype that asks for none; None if the operation has no layouts."""
        return self.layouts[0] if self.layouts else None

    def case(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        precision: str | None = None,
        *,
        causal: bool | None = None,
        layout: str | None = None,
        inputs: str = "normal",
    ) -> Case:
        """A case of this operation, with `precision`, `causal` and `layout` at their defaults where they apply."""
        precision = precision or self.precisions(dtype)[0]
        layout = layout or self.plain_layout(dtype)
        if self.causal:
            causal = bool(causal)
        return Case(self.name, tuple(zip(self.dims, shape, strict=True)), dtype, precision, causal, layout, inputs)

    def plain_cases(self, device_type: str, dtypes_beyond: Iterable[str] = ()) -> list[Case]:
        """The default cases, and in each of their shapes those of further dtypes."""
        cases = self.default_cases(device_type)
        shapes = dict.fromkeys((case.shape, case.causal) for case in cases)
        return cases + [
            self.case(shape, dtype, precision, causal=causal)
            for dtype in dtypes_beyond
            for shape, causal in shapes
            for precision in self.precisions(dtype)
        ]

    def cases(self, inputs: str, device_type: str, shapes: tuple[Shape, ...] = ()) -> list[Case]:
        """A family's cases, of the given shapes or else of its own, in every dtype, arithmetic and mask."""
        family = self.families[inputs]
        if not (shapes or family.shapes):
            return self.plain_cases(device_type, (dtype for dtype in family.dtypes if dtype in DTYPES_BEYOND))
        return [
            self.case(shape, dtype, precision, causal=causal, layout=layout, inputs=inputs)
            for shape in shapes or family.shapes
            for dtype in family.dtypes
            for precision in self.precisions(dtype)
            for causal in (family.causal if self.causal else (None,))
            for layout in family.layouts
        ]

    def memory_bytes(self, case: Case) -> int:
        """Least device memory that a checked run of `case` needs.

        Inputs of two draws and the buffers that calls read, two results with a copy of each, the truth's workspace.
        """
        output = self._output_bytes(case)
        return 3 * (self.bytes(case) - output) + 4 * output + self.workspace_bytes(case)

    def _output_bytes(self, case: Case) -> int:
        count = 1
        for size in self.output_shape(case):
            count *= size
        return count * case.output_bytes

    def validate(self, dims: Mapping[str, int]) -> None:
        """Raise `UsageError` for sizes that contradict each other."""

    def parse_shape(self, text: str) -> tuple[int, ...]:
        """`M=512,N=512,K=512` -> (512, 512, 512). Raises `UsageError`: what is missing, unknown or not a size."""
        example = ",".join(f"{dim}=512" for dim in self.dims)
        found: dict[str, int] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise UsageError(f"--shape {text!r}: {part!r} is not DIM=SIZE; {self.name} takes e.g. {example}")
            if name not in self.dims:
                raise UsageError(
                    f"--shape {text!r}: unknown dimension {name!r}; {self.name} has {', '.join(self.dims)}"
                )
            if name in found:
                raise UsageError(f"--shape {text!r}: dimension {name} is given twice")
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
                raise UsageError(f"--shape {text!r}: {name}={value!r} is not a whole number; e.g. {example}")
            if int(value) < 0:
                raise UsageError(f"--shape {text!r}: {name}={value} must be at least 0")
            found[name] = int(value)
        missing = [dim for dim in self.dims if dim not in found]
        if missing:
            raise UsageError(f"--shape {text!r}: missing {', '.join(missing)}; {self.name} takes e.g. {example}")
        self.validate(found)
        return tuple(found[dim] for dim in self.dims)
