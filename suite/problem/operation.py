"""What an operation is: its sizes, options, inputs, float64 truth with its error bound, flops and bytes.

Each file in `suite/ops/` has one subclass of `Operation` and its instance `OP`. All that depends on the operation is
asked of it; nothing else in the tree knows a shape, an option, a reference or a tolerance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from suite.core.errors import UsageError
from suite.numerics import formats
from suite.problem import shape as shapes_by_name
from suite.problem.case import Case
from suite.problem.option import Option, Value
from suite.problem.shape import Shape
from suite.problem.source import Source

if TYPE_CHECKING:
    import torch

    from suite.problem.family import Family
    from suite.problem.telling_case import TellingCase
    from suite.problem.truth import Truth


class Operation(ABC):
    """One operation. `rank` and `options` are literals, which `suite.ops` reads without importing the file."""

    rank: ClassVar[int]
    """Place among the operations: a course takes them in ascending order."""
    name: str
    formula: str
    """The definition in one line; `list` shows it."""
    dims: tuple[str, ...]
    """Names of the dimensions, in the order of the signature."""
    is_square: ClassVar[bool] = False
    """Whether `--shape 512` is a shape: that size in every dimension."""
    options: ClassVar[tuple[Option, ...]] = ()
    outputs: tuple[str, ...] = ()
    """Names of the results, if there are several: a call then returns a tuple."""
    dtypes: tuple[str, ...] = tuple(formats.DTYPES)
    """Element types in which a given shape runs if none is named."""
    dtypes_beyond: tuple[str, ...] = ()
    """Those that run only if they are named, such as DTYPES_BEYOND."""
    ragged: ClassVar[tuple[Shape, ...]]
    """Sizes of one, primes, one off a tile: those of the family `sizes`."""
    families: ClassVar[Mapping[str, Family]]
    """Kinds of inputs by name: `normal`, and those that break kernels."""
    telling: ClassVar[tuple[TellingCase, ...]] = ()
    """Small cases that show what the usual sizes hide; every implementation has to pass them in a plain run."""
    sweep: ClassVar[tuple[Shape, ...]]
    """Sizes from tiny to large, in ascending order."""
    source: Source | None = None
    """The file that defines it, if it is a user's."""
    signature: str = ""
    """How a kernel of such an operation is called: `scaled(x, weight)`."""

    # What an operation says

    @abstractmethod
    def default_cases(self, device_type: str) -> list[Case]:
        """What `compare` runs when no shape is given. Small on a CPU, where kernels are interpreted or emulated."""

    @abstractmethod
    def operands(self, case: Case) -> tuple[Shape, ...]:
        """The shapes of the inputs, in the order of the signature."""

    @abstractmethod
    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """The float64 result of the rounded inputs, with its error bound, in pieces that fit in memory."""

    @abstractmethod
    def output_shape(self, case: Case) -> Shape:
        """The shape of the result; of several, that of one vector with all of them (`outputs.flat_shape`)."""

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        """The shapes of the results, in the order in which a call returns them; most operations have one."""
        return (self.output_shape(case),)

    def output_dtype(self, case: Case) -> str:
        return formats.OUTPUT_DTYPES.get(case.dtype, case.dtype)

    @abstractmethod
    def flops(self, case: Case) -> int:
        """Arithmetic the definition asks for, counted once."""

    @abstractmethod
    def workspace_bytes(self, case: Case) -> int:
        """Device memory for the truth and for judging, beyond inputs and output."""

    def precisions(self, dtype: str) -> tuple[str, ...]:
        """The arithmetics a case of this dtype may ask for, the plain one first."""
        return ("ieee",)

    def plain_precisions(self, dtype: str) -> tuple[str, ...]:
        """Those of a given shape if none is named."""
        return self.precisions(dtype)

    def default_option(self, option: Option, dtype: str) -> Value:
        """The value of an option in a case of this dtype that asks for none."""
        return option.values[0]

    @property
    def entry(self) -> str:
        """The name of what a file of `--with` defines for it."""
        return self.name

    def callable_of(self, entry: Any, case: Case) -> Any:
        """What is called with the arrays of `case`, of what a file defines as `entry`."""
        return entry

    def arguments(self, case: Case) -> dict[str, Any]:
        """Keyword arguments of the call."""
        return {}

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        """For each operand, whether its last two axes are swapped in memory."""
        return (False,) * len(self.operands(case))

    def second(self, case: Case) -> Case:
        """The case of the inputs of a check's second call: the same shapes, from a family that may show more."""
        return case

    def validate(self, dims: Mapping[str, int]) -> None:
        """Raise `UsageError` for sizes that contradict each other."""

    def random_shape(self, size: Callable[[], int]) -> Shape:
        """A small valid shape, for tests. `size` draws a number from 0 to about 70."""
        return tuple(size() for _ in self.dims)

    # Cases

    def case(
        self,
        shape: Shape,
        dtype: str = "float32",
        precision: str | None = None,
        *,
        inputs: str = "normal",
        **options: Value | None,
    ) -> Case:
        """A case of this operation. A precision or option that is None or not given has its default.

        Raises `UsageError` for an option, or a value of one, that the operation does not have.
        """
        given = {name: value for name, value in options.items() if value is not None}
        for name in given.keys() - {option.name for option in self.options}:
            raise UsageError(f"{self.name} has no option {name!r}")
        chosen = []
        for option in self.options:
            value = given.get(option.name, self.default_option(option, dtype))
            if value not in option.values:
                valid = ", ".join(map(str, option.values))
                raise UsageError(f"{self.name}: {option.name} {value!r} is none of {valid}")
            if value != option.values[0]:
                chosen.append((option.name, value))
        dims = tuple(zip(self.dims, shape, strict=True))
        precision = precision or self.precisions(dtype)[0]
        return Case(self.name, dims, dtype, precision, tuple(chosen), inputs, self.source)

    def option_values(self, case: Case) -> dict[str, Any]:
        """The value of every option in a case, plain ones too."""
        return {option.name: case.option(option.name, option.values[0]) for option in self.options}

    def with_options(self, case: Case, **options: Value) -> Case:
        """The same case with other values of these options."""
        values = self.option_values(case) | options
        return self.case(case.shape, case.dtype, case.precision, inputs=case.inputs, **values)

    def option_combinations(
        self, dtype: str, given: Mapping[str, tuple[Value, ...]], *, every: bool = True
    ) -> list[dict[str, Any]]:
        """All combinations of the options' values: those given; else all, of an option that runs every value; else the
        default. `every=False`: the default of those too.
        """
        values = [
            given.get(option.name)
            or (option.values if option.every and every else (self.default_option(option, dtype),))
            for option in self.options
        ]
        names = [option.name for option in self.options]
        return [dict(zip(names, chosen, strict=True)) for chosen in product(*values)]

    def plain_cases(self, device_type: str, dtypes_beyond: Iterable[str] = ()) -> list[Case]:
        """The default cases, and in each of their shapes those of further dtypes."""
        cases = self.default_cases(device_type)
        every = [option.name for option in self.options if option.every]
        kinds = {(case.shape, tuple((name, self.option_values(case)[name]) for name in every)): None for case in cases}
        return cases + [
            self.case(shape, dtype, precision, **dict(options))
            for dtype in dtypes_beyond
            for shape, options in kinds
            for precision in self.precisions(dtype)
        ]

    def cases(self, inputs: str, device_type: str, shapes: tuple[Shape, ...] = ()) -> list[Case]:
        """A family's cases, of the given shapes or else of its own, in all its dtypes, arithmetics and options."""
        family = self.families[inputs]
        if not (shapes or family.shapes):
            return self.plain_cases(device_type, (dtype for dtype in family.dtypes if dtype in formats.DTYPES_BEYOND))
        return [
            self.case(shape, dtype, precision, inputs=inputs, **options)
            for shape in shapes or family.shapes
            for dtype in family.dtypes
            for precision in self.precisions(dtype)
            for options in self.option_combinations(dtype, family.options)
        ]

    def telling_cases(self, dtype: str, precision: str) -> dict[str, Case]:
        """By name, the telling cases of families that have this dtype."""
        return {
            each.name: self.case(each.shape, dtype, precision, inputs=each.inputs, **each.options)
            for each in self.telling
            if dtype in self.families[each.inputs].dtypes
        }

    def parse_shapes(self, text: str) -> list[Shape]:
        """`M=512,N=512,K=1,2` -> [(512, 512, 1), (512, 512, 2)]. Raises `UsageError` that says what is wrong."""
        found = shapes_by_name.parse(text, self.name, self.dims, is_square=self.is_square)
        for dims in found:
            self.validate(dims)
        return [tuple(dims.values()) for dims in found]

    # Inputs, bytes and memory

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The inputs of the case's family on `device`, in its dtype and placement. They may be views of larger arrays.

        The same seed gives the same inputs on the same kind of device.
        """
        import torch

        family = self.families[case.inputs]
        drawn = family.values(self.operands(case), case, torch.Generator(device).manual_seed(seed))
        return tuple(
            family.place(operand.mT.contiguous(), position).mT if swapped else family.place(operand, position)
            for position, (operand, swapped) in enumerate(zip(drawn, self.stored_transposed(case), strict=True))
        )

    def bytes(self, case: Case) -> int:
        """The least traffic to memory: every element of every input read once, the output written once."""
        stored = self.families[case.inputs].stored
        inputs = sum(stored(shape, position) for position, shape in enumerate(self.operands(case)))
        return inputs * case.element_bytes + self.output_bytes(case)

    def output_bytes(self, case: Case) -> int:
        return math.prod(self.output_shape(case)) * formats.element_bytes(self.output_dtype(case))

    def memory_bytes(self, case: Case) -> int:
        """Least device memory that a checked run of `case` needs.

        Inputs of two draws and the buffers that calls read, two results with a copy of each, and another two where
        several results are joined to compare them, the truth's workspace.
        """
        output = self.output_bytes(case)
        return 3 * (self.bytes(case) - output) + (6 if self.outputs else 4) * output + self.workspace_bytes(case)
