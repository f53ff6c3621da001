"""What an operation is: its sizes, inputs, float64 truth, error bound, flops and bytes.

One subclass of `Op` per file in `suite/ops/`, instantiated there as `OP`. Everything that depends on the operation is
asked of it; nothing else in the tree knows a shape, a reference or a tolerance.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suite.errors import UsageError

if TYPE_CHECKING:
    import torch

    from suite.check import Truth

DTYPES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Element types and their bytes."""

PRECISIONS: dict[str, str] = {
    "ieee": "products and sums in float32 (products of 16-bit inputs are exact there)",
    "tf32": "products of inputs rounded to tf32 (11 significant bits), sums in float32",
}


@dataclass(frozen=True)
class Case:
    """One problem: an operation, a size, a dtype, an arithmetic. `causal` and `layout` are None where meaningless."""

    operation: str
    dims: tuple[tuple[str, int], ...]
    dtype: str = "float32"
    precision: str = "ieee"
    causal: bool | None = None
    layout: str | None = None

    def __getitem__(self, dim: str) -> int:
        return dict(self.dims)[dim]

    @property
    def label(self) -> str:
        """The column `case`: `M=512,N=512,K=512`, then what differs from the plain problem: `,causal`, `,layout=nt`."""
        parts = [f"{name}={size}" for name, size in self.dims]
        if self.causal:
            parts.append("causal")
        if self.layout not in (None, "nn"):
            parts.append(f"layout={self.layout}")
        return ",".join(parts)

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.dims)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        dims = tuple((str(name), int(size)) for name, size in data["dims"])
        return cls(**{**data, "dims": dims})


class Op(ABC):
    """One operation. Shapes are named by `dims`, in the order of the signature."""

    name: ClassVar[str]
    formula: ClassVar[str]
    """The definition in one line; `list` shows it."""
    dims: ClassVar[tuple[str, ...]]
    causal: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = ()
    ragged: ClassVar[tuple[tuple[int, ...], ...]]
    """Sizes that break kernels: one, primes, one off a tile."""
    sweep: ClassVar[tuple[tuple[int, ...], ...]]
    """Sizes from tiny to large, in ascending order."""

    @abstractmethod
    def default_cases(self, device_type: str) -> list[Case]:
        """What `compare` runs when no shape is given. Small on a CPU, where kernels are interpreted or emulated."""

    @abstractmethod
    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Random normal inputs on `device`, rounded once to the case's dtype, in the case's layout."""

    @abstractmethod
    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """The float64 result with its error bound, in pieces that fit in memory, computed from the rounded inputs."""

    @abstractmethod
    def output_shape(self, case: Case) -> tuple[int, ...]: ...

    @abstractmethod
    def flops(self, case: Case) -> int:
        """Arithmetic the definition asks for, counted once."""

    @abstractmethod
    def bytes(self, case: Case) -> int:
        """The least traffic to memory: every input read once, the output written once."""

    @abstractmethod
    def workspace_bytes(self, case: Case) -> int:
        """What computing the truth takes on the device beyond inputs and output."""

    def arguments(self, case: Case) -> dict[str, Any]:
        """Keyword arguments of the call."""
        return {}

    def precisions(self, dtype: str) -> tuple[str, ...]:
        """The arithmetics a case of this dtype may ask for."""
        return ("ieee",)

    def case(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        precision: str = "ieee",
        *,
        causal: bool | None = None,
        layout: str | None = None,
    ) -> Case:
        """A case of this operation, with `causal` and `layout` at their defaults where they apply."""
        if self.causal:
            causal = bool(causal)
        if self.layouts:
            layout = layout or self.layouts[0]
        return Case(self.name, tuple(zip(self.dims, shape, strict=True)), dtype, precision, causal, layout)

    def memory_bytes(self, case: Case) -> int:
        """Least device memory a checked run of `case` needs: inputs, outputs and the truth's workspace."""
        return self.bytes(case) + 2 * self._output_bytes(case) + self.workspace_bytes(case)

    def _output_bytes(self, case: Case) -> int:
        count = 1
        for size in self.output_shape(case):
            count *= size
        return count * case.element_bytes

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
            if int(value) <= 0:
                raise UsageError(f"--shape {text!r}: {name}={value} must be at least 1")
            found[name] = int(value)
        missing = [dim for dim in self.dims if dim not in found]
        if missing:
            raise UsageError(f"--shape {text!r}: missing {', '.join(missing)}; {self.name} takes e.g. {example}")
        self.validate(found)
        return tuple(found[dim] for dim in self.dims)
