"""The description of an operation: sizes, options, inputs, float64 truth with its error bound, flops and bytes.

Each file in `suite/ops/` has one subclass of `Operation` and its instance `OP`. Everything that depends on the
operation stands there; nothing else in the tree knows a shape, an option, a reference or a tolerance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from suite.core.errors import UsageError
from suite.core.names import did_you_mean
from suite.numerics import formats
from suite.numerics.sampled import STATISTICS_BYTES
from suite.problem import shape as shapes_by_name
from suite.problem.case import Case
from suite.problem.option import Option, Value
from suite.problem.outputs import judged_dtype, judged_shape
from suite.problem.shape import Shape
from suite.problem.source import Source

if TYPE_CHECKING:
    import torch

    from suite.problem.family import Family
    from suite.problem.telling_case import TellingCase
    from suite.problem.truth import Truth


class Operation(ABC):
    """One operation. `rank`, `options` and `over_ranks` are literals: `suite.ops` reads them and imports no file."""

    rank: ClassVar[int]
    """Position among the operations; a course takes them in ascending order."""
    name: str
    formula: str
    """The definition in one line; `list` shows it."""
    dims: tuple[str, ...]
    """Names of the dimensions, in the order of the signature."""
    is_square: ClassVar[bool] = False
    """True if `--shape 512` is a shape: that size in every dimension."""
    options: ClassVar[tuple[Option, ...]] = ()
    outputs: tuple[str, ...] = ()
    """Names of the results if a call returns several."""
    dtypes: tuple[str, ...] = tuple(formats.DTYPES)
    """Element types of a given shape if none is named."""
    dtypes_beyond: tuple[str, ...] = ()
    """Element types that run only if they are named, such as DTYPES_BEYOND."""
    ragged: ClassVar[tuple[Shape, ...]]
    """Sizes of the family `sizes`: 1, primes, one off a tile."""
    families: ClassVar[Mapping[str, Family]]
    """Kinds of inputs by name: `normal`, and others that break kernels."""
    telling: ClassVar[tuple[TellingCase, ...]] = ()
    """Telling cases beside those that are built from the declarations (`suite/problem/telling_set.py`). Every
    implementation must pass them in a plain run."""
    telling_left_out: tuple[str, ...] = ()
    """Names of telling cases, or of their families, that are left out because libraries get them wrong. `subnormal@`
    stands for subnormal numbers in any one operand."""
    weights: ClassVar[tuple[int, ...]] = ()
    """Positions of the operands that are weights of a model, for the inputs `activations` and `weights`."""
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Sizes in telling cases, by dimension, where SIZES do not suit it. The second one is an ordinary size."""
    large: ClassVar[tuple[TellingCase, ...]] = ()
    """Cases with one large dimension, for mistakes that begin there. A user's native kernels must pass them too."""
    sweep: ClassVar[tuple[Shape, ...]]
    """Sizes from tiny to large, in ascending order."""
    source: Source | None = None
    """The file that defines the operation, if it is a user's."""
    signature: str = ""
    """The call of a kernel of a user's operation: `scaled(x, weight)`."""

    weaknesses: tuple[str, ...] = ()
    """Reasons why an ok of this operation says little, if it is a user's."""
    over_ranks: ClassVar[bool] = False
    """True if several processes compute it together, each with inputs of its own (`RankedOperation`)."""
    values_set_work: ClassVar[bool] = False
    """True if the work depends on the values, as in a selection: most rounds of timed calls draw all values anew."""
    unexamined: int = 0
    """Inputs and parameters of a user's operation of which it is not known whether they change anything."""

    # Methods that an operation defines

    @abstractmethod
    def default_cases(self, device_type: str) -> list[Case]:
        """Return the cases to run if no shape is given; small on a CPU, where kernels are interpreted."""

    @abstractmethod
    def operands(self, case: Case) -> tuple[Shape, ...]:
        """Return the shapes of the inputs, in the order of the signature."""

    @abstractmethod
    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the float64 result of the rounded inputs with its error bound, in pieces that fit in memory."""

    def exact_truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the pieces of `truth`, whose values have two parts if the dtype is float64."""
        found = self.truth(inputs, case)
        if case.dtype != formats.DOUBLE or self.source is not None:
            return found
        from suite import exact
        from suite.problem.truth import in_two_parts

        return in_two_parts(found, exact.results(self.name, inputs, self.arguments(case)))

    @abstractmethod
    def output_shape(self, case: Case) -> Shape:
        """Return the shape of the result; for several results, that of the vector that joins them
        (`outputs.flat_shape`)."""

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        """Return the dtypes of the inputs, in the order of the signature. In most operations all have the case's."""
        return (case.dtype,) * len(self.operands(case))

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        """Return the shapes of the results, in the order in which a call returns them. Most operations have one."""
        return (self.output_shape(case),)

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        """Return the dtypes of the results, in the order in which a call returns them."""
        return (self.output_dtype(case),) * len(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        """Return the dtype of the result; for several results, that of the vector that joins them
        (`outputs.joined_dtype`)."""
        return formats.OUTPUT_DTYPES.get(case.dtype, case.dtype)

    @abstractmethod
    def flops(self, case: Case) -> int:
        """Return the arithmetic operations of the definition, each counted once."""

    @abstractmethod
    def workspace_bytes(self, case: Case) -> int:
        """Return the device memory for the truth and for judging, beyond inputs and output."""

    def precisions(self, dtype: str) -> tuple[str, ...]:
        """Return the precisions that a case of this dtype may ask for, the plain one first."""
        return ("ieee",)

    def plain_precisions(self, dtype: str) -> tuple[str, ...]:
        """Return the precisions of a given shape if none is named."""
        return self.precisions(dtype)

    def default_option(self, option: Option, dtype: str) -> Value:
        """Return the value of an option in a case of this dtype that does not set it."""
        return option.values[0]

    @property
    def entry(self) -> str:
        """The name under which a file of `--with` defines the operation."""
        return self.name

    def callable_of(self, entry: Any, case: Case) -> Any:
        """Return the function to call with the arrays of `case`, given the object that a file defines as `entry`."""
        return entry

    def arguments(self, case: Case) -> dict[str, Any]:
        """Return the keyword arguments of the call."""
        return {}

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        """Return for each operand whether its last two axes are swapped in memory."""
        return (False,) * len(self.operands(case))

    def second_case(self, case: Case) -> Case:
        """Return the case for the second call of a check: the same shapes, perhaps inputs of another family."""
        return case

    def validate(self, dims: Mapping[str, int]) -> None:
        """Raise `UsageError` for sizes that contradict each other."""

    def covered_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the sizes whose pairs occur in telling cases, by the name of what `shape_of_sizes` takes."""
        from suite.problem.telling_case import SIZES

        return {dim: self.sizes.get(dim, SIZES) for dim in self.dims}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        """Return the shape for one of the `covered_sizes` each."""
        return tuple(sizes[dim] for dim in self.dims)

    @property
    def usual_shape(self) -> Shape:
        """The shape of the second of the `covered_sizes` each: small, and no multiple of a tile."""
        return self.shape_of_sizes({name: (*sizes, *sizes)[1] for name, sizes in self.covered_sizes().items()})

    def named_dims(self, shape: Shape) -> dict[str, int]:
        return dict(zip(self.dims, shape, strict=True))

    def random_shape(self, size: Callable[[], int]) -> Shape:
        """Return a small valid shape, for tests. `size` draws a number from 0 to about 70."""
        return tuple(size() for _ in self.dims)

    # Cases

    def case(
        self,
        shape: Shape,
        dtype: str | None = None,
        precision: str | None = None,
        *,
        inputs: str = "normal",
        **options: Value | None,
    ) -> Case:
        """Make a case of this operation. A dtype, precision or option that is None or not given has its default.

        Raises `UsageError` for an option, or a value of one, that the operation does not have.
        """
        dtype = dtype or self.dtypes[0]
        given = {name: value for name, value in options.items() if value is not None}
        known = [option.name for option in self.options]
        for name in given.keys() - set(known):
            raise UsageError(f"{self.name} has no option {name!r}{did_you_mean(name, known)}")
        chosen = []
        for option in self.options:
            value = given.get(option.name, self.default_option(option, dtype))
            if not option.accepts(value):
                raise UsageError(f"{self.name}: {option.name} {value!r} is none of {option.valid}")
            if value != option.values[0]:
                chosen.append((option.name, str(value) if option.integers else value))
        dims = tuple(zip(self.dims, shape, strict=True))
        precision = precision or self.precisions(dtype)[0]
        return Case(self.name, dims, dtype, precision, tuple(chosen), inputs, self.source)

    def option_values(self, case: Case) -> dict[str, Any]:
        """Return the value of every option in a case, plain ones included."""
        return {option.name: case.option(option.name, option.values[0]) for option in self.options}

    def with_options(self, case: Case, **options: Value) -> Case:
        """Return the same case with other values of these options."""
        values = self.option_values(case) | options
        return self.case(case.shape, case.dtype, case.precision, inputs=case.inputs, **values)

    def option_combinations(
        self, dtype: str, given: Mapping[str, tuple[Value, ...]], *, every: bool = True
    ) -> list[dict[str, Any]]:
        """Return all combinations of the options' values.

        Options that are not given take all values if they run every value (`Option.every`), else their default.
        `every=False`: they always take their default.
        """
        values = [
            given.get(option.name)
            or (option.values if option.every and every else (self.default_option(option, dtype),))
            for option in self.options
        ]
        names = [option.name for option in self.options]
        return [dict(zip(names, chosen, strict=True)) for chosen in product(*values)]

    def plain_cases(self, device_type: str, dtypes_beyond: Iterable[str] = ()) -> list[Case]:
        """Return the default cases, and further dtypes in each of their shapes."""
        cases = self.default_cases(device_type)
        every = [option.name for option in self.options if option.every]
        kinds = {(case.shape, tuple((name, self.option_values(case)[name]) for name in every)): None for case in cases}
        return cases + [
            self.case(shape, dtype, precision, **dict(options))
            for dtype in dtypes_beyond
            for shape, options in kinds
            for precision in self.precisions(dtype)
        ]

    def cases(
        self, inputs: str, device_type: str, shapes: tuple[Shape, ...] = (), more: Iterable[str] = ()
    ) -> list[Case]:
        """Return a family's cases in all its dtypes, precisions and options, for the given shapes or else its own.

        more: dtypes that the family supports besides those of its declaration.
        """
        family = self.family(inputs)
        dtypes = dict.fromkeys((*family.dtypes, *filter(family.supports, more)))
        if not (shapes or family.shapes):
            beyond = [dtype for dtype in dtypes if dtype in formats.DTYPES_BEYOND and dtype not in self.dtypes]
            plain = self.plain_cases(device_type, beyond)
            return [replace(case, inputs=inputs) for case in plain]
        return [
            self.case(shape, dtype, precision, inputs=inputs, **options)
            for shape in shapes or family.shapes
            for dtype in dtypes
            for precision in self.precisions(dtype)
            for options in self.option_combinations(dtype, family.options)
        ]

    @cached_property
    def all_telling(self) -> tuple[TellingCase, ...]:
        """The telling cases that the operation declares, and those that are built from its declarations.

        A user's operation has none: only the sizes in its file are known to be valid.
        """
        from suite.problem.telling_set import all_telling_cases

        return all_telling_cases(self) if self.source is None else ()

    def telling_cases(
        self, dtype: str, precision: str, *, first: bool = False, device_type: str = "cpu"
    ) -> dict[str, Case]:
        """Return the telling cases whose families have this dtype, by name.

        Operands with elements far apart are left out where they would take gigabytes (`far.is_cheap`). first: only
        those that the suite's own implementations run. They run each case in one of the dtypes only, since the parity
        tests run them on all families at many sizes.
        """
        from suite.problem import far, layouts

        found = [each for each in self.all_telling if each.first or not first]
        if first and dtype in self.dtypes:
            found = found[self.dtypes.index(dtype) :: len(self.dtypes)]
        return {
            each.name: self.case(each.shape, dtype, precision, inputs=each.inputs, **each.options)
            for each in found
            if self.family(each.inputs).supports(dtype)
            and (far.is_cheap(device_type) or not layouts.is_far(each.inputs))
        }

    def large_cases(self, dtype: str, precision: str) -> dict[str, Case]:
        """Return the cases of `large` whose families have this dtype, by name."""
        return {
            each.name: self.case(each.shape, dtype, precision, inputs=each.inputs, **each.options)
            for each in self.large
            if self.family(each.inputs).supports(dtype)
        }

    def family(self, inputs: str) -> Family:
        """Return the family of that name, or what several names and layouts with `+` between them have in common.

        Raises `UsageError` for an unknown one.
        """
        from suite.problem import inputs_by_name

        if not self.has_inputs(inputs):
            valid = inputs_by_name.valid(inputs, self.families)
            raise UsageError(f"{self.name} has no inputs {inputs!r}; valid are {valid}")
        found = inputs_by_name.find(inputs, self.families, self.source is None, self.weights)
        return found if inputs in self.families else replace(found, shapes=found.shapes or (self.usual_shape,))

    def has_inputs(self, inputs: str) -> bool:
        """True if the operation has inputs of this name: a family, special numbers, a layout, or several of them."""
        from suite.problem import inputs_by_name

        return inputs_by_name.known(inputs, self.families, self.source is None)

    def parse_shapes(self, text: str) -> list[Shape]:
        """Parse `M=512,N=512,K=1,2` to [(512, 512, 1), (512, 512, 2)]. Raises `UsageError` for anything else."""
        flags = {option.name: option.flag for option in self.options}
        found = shapes_by_name.parse(text, self.name, self.dims, is_square=self.is_square, options=flags)
        for dims in found:
            self.validate(dims)
        return [tuple(dims.values()) for dims in found]

    # Inputs, bytes and memory

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Draw the inputs of the case's family on `device`, in its dtype and placement. They may be views.

        The same seed gives the same inputs on the same kind of device.
        """
        import torch

        family = self.family(case.inputs)
        drawn = family.values(self.operands(case), case, torch.Generator(device).manual_seed(seed))
        return tuple(
            family.place(operand.mT.contiguous(), position).mT if swapped else family.place(operand, position)
            for position, (operand, swapped) in enumerate(zip(drawn, self.stored_transposed(case), strict=True))
        )

    def bytes(self, case: Case) -> int:
        """Return the least memory traffic: every element of every input read once, the output written once."""
        return self._input_bytes(case) + self.output_bytes(case)

    def _input_bytes(self, case: Case) -> int:
        stored = self.family(case.inputs).stored
        operands = zip(self.operands(case), self.operand_dtypes(case), strict=True)
        return sum(stored(shape, i) * formats.element_bytes(dtype) for i, (shape, dtype) in enumerate(operands))

    def output_bytes(self, case: Case) -> int:
        """Return the memory of the results, each in its own type."""
        results = zip(self.output_shapes(case), self.output_dtypes(case), strict=True)
        return sum(math.prod(judged_shape(*each)) * formats.element_bytes(judged_dtype(each[1])) for each in results)

    def joined_bytes(self, case: Case) -> int:
        """Return the memory of the one array that joins the results."""
        return math.prod(self.output_shape(case)) * formats.element_bytes(self.output_dtype(case))

    def memory_bytes(self, case: Case) -> int:
        """Return the least device memory that a checked run of `case` needs.

        It holds the inputs of two draws, the buffers that calls read, two results with a copy of each, two more if
        several results are joined to compare them, the workspace of the truth, and that of the statistics.
        """
        held = 3 * self._input_bytes(case) + 4 * self.output_bytes(case)
        held += 2 * self.joined_bytes(case) if self.outputs else 0
        if case.dtype == formats.DOUBLE:
            from suite import exact

            held += exact.workspace_bytes(sum(map(math.prod, self.operands(case))), math.prod(self.output_shape(case)))
        return held + self.workspace_bytes(case) + STATISTICS_BYTES
