"""Makes an `Operation` of the operation that a user's file defines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from suite.core.errors import SuiteError
from suite.custom.about import About, Facts
from suite.custom.varied import VARIED, is_constant
from suite.hardware import memory_bytes
from suite.problem import shape as shapes_by_name
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.outputs import joined_dtype, joined_shape
from suite.problem.shape import Shape
from suite.problem.source import Source

if TYPE_CHECKING:
    import torch

    from suite.custom.program import Program
    from suite.problem.truth import Truth

WORKSPACE_ARRAYS = 8
"""Float64 arrays of the size of the inputs and the output that the truth and its bound need at a time, at most."""


def _drawn_by_the_file(shapes: tuple[Shape, ...], case: Case, source: object) -> tuple[torch.Tensor, ...]:
    raise AssertionError("make_inputs draws them")


def _device() -> torch.device:
    """The device on which the code of the file runs in this process."""
    import torch

    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


class CustomOperation(Operation):
    """A user's operation. `program` is the code of its file, or None in a process that has only its description.

    Without `program` nothing is drawn or called.
    """

    source: Source

    rank = 0
    families: ClassVar = {
        "normal": Family("as the file draws them", _drawn_by_the_file),
        VARIED: Family("as the file draws them, and random numbers in constant parameters", _drawn_by_the_file),
    }
    ragged = ()
    sweep = ()

    def __init__(self, source: Source, about: About, program: Program | None = None) -> None:
        self.source, self.about = source, about
        self.name, self.formula, self.signature = about.name, about.formula, about.signature
        self.dims, self.dtypes, self.dtypes_beyond = about.dims, about.dtypes, about.beyond
        self.weaknesses, self.unexamined = about.weaknesses, about.unexamined
        self._program = program
        self._facts = {(each.shape, each.dtype): each for each in about.facts}
        self._known_to_be_a_function = False

    @property
    def program(self) -> Program:
        """The file's code; loads the file if this process has not."""
        if self._program is None:
            from suite.custom.load import load

            self._program = load(self.source)
        return self._program

    @property
    def entry(self) -> str:
        return self.about.entry

    def callable_of(self, entry: Any, case: Case) -> Any:
        return self.program.callable_of(entry, case)

    def facts(self, case: Case) -> Facts:
        """The facts of a case. Raises `SuiteError` if the description does not have them."""
        key = case.shape, case.dtype
        if key not in self._facts:
            if self._program is None:
                raise SuiteError(f"{self.name} {case.label} {case.dtype} was not described")
            from suite.custom.truth import facts

            self._facts[key] = facts(self._program, case, _device())
        return self._facts[key]

    def default_cases(self, device_type: str) -> list[Case]:
        return [self.case(shape, dtype) for shape in self.about.defaults for dtype in self.about.dtypes]

    def cases(
        self, inputs: str, device_type: str, shapes: tuple[Shape, ...] = (), more: Iterable[str] = ()
    ) -> list[Case]:
        return super().cases(inputs, device_type, shapes if inputs == "normal" else shapes or self.about.defaults, more)

    def telling_cases(
        self, dtype: str, precision: str, *, first: bool = False, device_type: str = "cpu"
    ) -> dict[str, Case]:
        """The first case with other numbers in its constant parameters, if it has such and they fit beside that case.

        A process that has only the description of the file knows none.
        """
        shape = next((each.shape for each in self._facts.values() if each.dtype == dtype), None)
        if self._program is None or shape is None:
            return {}
        case = self.case(shape, dtype, precision, inputs=VARIED)
        if not self.fits(case, _device()):
            return {}
        weights = self._program.weights(replace(case, inputs="normal"))
        return {VARIED: case} if any(map(is_constant, weights.values())) else {}

    def precisions(self, dtype: str) -> tuple[str, ...]:
        """ieee; for float32 also tf32 if there are products that may be computed in it."""
        return (
            ("ieee", "tf32")
            if dtype == "float32" and any(each.multiplies for each in self._facts.values())
            else ("ieee",)
        )

    def plain_precisions(self, dtype: str) -> tuple[str, ...]:
        return ("ieee",)

    def parse_shapes(self, text: str) -> list[Shape]:
        """Sizes from a text. Dimensions that it leaves out get the size of the file's first shape."""
        defaults = dict(zip(self.dims, self.about.defaults[0], strict=True)) if self.about.defaults else {}
        found = shapes_by_name.parse(text, self.name, self.dims, is_square=False, defaults=defaults)
        return [tuple(dims.values()) for dims in found]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return self.facts(case).operands

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the results; empty if there is one, or if no case was described."""
        results = next((each.results for each in self._facts.values()), ())
        return tuple(each.name for each in results) if len(results) > 1 else ()

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return tuple(each.shape for each in self.facts(case).results)

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return tuple(each.dtype for each in self.facts(case).results)

    def output_shape(self, case: Case) -> Shape:
        return joined_shape(self.output_shapes(case), self.output_dtypes(case))

    def output_dtype(self, case: Case) -> str:
        return joined_dtype(self.output_dtypes(case))

    def flops(self, case: Case) -> int:
        return self.facts(case).flops

    def bytes(self, case: Case) -> int:
        return self.facts(case).bytes

    def workspace_bytes(self, case: Case) -> int:
        found = self.facts(case)
        elements = found.operand_bytes // case.element_bytes + math.prod(self.output_shape(case))
        return 8 * WORKSPACE_ARRAYS * elements

    def fits(self, case: Case, device: torch.device) -> bool:
        """True if the free memory of `device` is large enough for `case`, as far as is known."""
        import torch

        on_cpu = device.type == "cpu"
        free = memory_bytes("cpu") if on_cpu else torch.cuda.mem_get_info(device)[0]
        return free is None or self.memory_bytes(case) <= free

    def memory_bytes(self, case: Case) -> int:
        return 3 * self.facts(case).operand_bytes + 4 * self.joined_bytes(case) + self.workspace_bytes(case)

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        inputs = self.program.draw(case, seed, device)
        shapes = tuple(tuple(each.shape) for each in inputs)
        if shapes != self.operands(case):
            raise SuiteError(f"{self.name}: inputs of one case have shapes {self.operands(case)}, and then {shapes}")
        return inputs

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """The truth, computed as a whole and yielded in blocks."""
        from suite.custom import truth
        from suite.custom.results import pieces
        from suite.problem.truth import Truth

        value = truth.exact(self.program, case, inputs)
        if not self._known_to_be_a_function:
            truth.refuse_random(self.program, case, inputs, value)
            self._known_to_be_a_function = True
        forms = self.facts(case).results
        limit = truth.allowed(self.program, case, inputs, value, forms)
        weak = truth.weakness(self.program, case, inputs, value, limit, forms)
        for index, dtype in pieces(forms, tuple(value.shape)):
            yield Truth(index, value[index], limit[index], dtype=dtype, weak=weak)
