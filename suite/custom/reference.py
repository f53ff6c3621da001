"""A file of `--reference`: a function `reference`, and the inputs of its calls.

shapes = ["M=4096,N=4096"]                         sizes to run; --shape gives others
def reference(x: Float[Tensor, "M N"]): ...        the result, in PyTorch or NumPy
def inputs(case): ...                              arguments, unless annotations give their shapes
mutates = ["out"]                                  parameters that reference writes to
dtypes = ("float32",)                              default: float32, float16, bfloat16; float64 too if named
tolerance = 1e-3                                   default: a bound from perturbed roundings
def flops(case): ...                               default: matrix products and convolutions
def bytes(case): ...                               default: inputs read once, the result written once
"""

from __future__ import annotations

import ast
import inspect
import math
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from suite.core.errors import UsageError
from suite.custom.about import About
from suite.custom.file import parsed, run
from suite.custom.memory import owned, shares_memory
from suite.custom.program import Function, Outcome, Program, mutates_of, signature_of
from suite.numerics.formats import DOUBLE, DTYPES, full_name
from suite.problem import shape as shapes_by_name
from suite.problem.case import Case
from suite.problem.outputs import leaves
from suite.problem.shape import Shape
from suite.problem.source import Source

STATED = ("flops", "bytes", "tolerance")
SMALL = 1 << 20
"""The largest number of elements, and the largest product of the dimensions, of a small case."""


class ReferenceFile(Program):
    """The code of a file of `--reference`."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._name = source.name
        tree = parsed(source)
        self.framework = "torch" if _imports(tree, "torch") or not _imports(tree, "numpy") else "numpy"
        module = run(source, {})
        reference = getattr(module, "reference", None)
        if not callable(reference):
            raise UsageError(f"{self._name} has no function reference; it defines {_public(tree)}")
        self._reference: Function = reference
        self.parameters = list(inspect.signature(reference).parameters)
        self.mutates = mutates_of(module, self.parameters, source.name)
        self._inputs = getattr(module, "inputs", None)
        self._stated = {name: getattr(module, name, None) for name in STATED}
        self._dtypes = self._checked_dtypes(getattr(module, "dtypes", tuple(DTYPES)))
        self._shapes_of_operands = {} if self._inputs else self._annotated()
        self._dims, self._defaults = self._sizes(getattr(module, "shapes", ()))

    def about(self) -> About:
        name = Path(self._name).stem
        lines = (inspect.getdoc(self._reference) or "").splitlines()
        return About(
            name=name,
            entry=name,
            signature=signature_of(name, self._reference),
            formula=lines[0] if lines else f"that of {self._name}",
            dims=self._dims,
            defaults=self._defaults,
            dtypes=self._dtypes,
            beyond=(),
            framework=self.framework,
        )

    def values(self, case: Case) -> list[Any]:
        if self._inputs is not None:
            values = self._inputs(case)
            return list(values) if type(values) in (tuple, list) else [values]
        return [torch.randn(shape) for shape in self.operands(case)]

    def is_small(self, case: Case) -> bool:
        """True if the annotations say so: the sizes of other arguments are not known before they are drawn."""
        try:
            shapes = _shapes(self._annotated().values(), case)
        except (UsageError, NameError):  # a size that is no dimension
            return False
        largest = max(sum(map(math.prod, shapes)), math.prod(size for _, size in case.dims))
        return bool(shapes) and largest <= SMALL

    def operands(self, case: Case) -> list[Shape]:
        """The shapes of the operands, from the annotations."""
        return _shapes(self._shapes_of_operands.values(), case)

    def reference(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        if self.framework == "torch":
            return self._reference
        return lambda *arguments: self._reference(*tree_map(_in_float64, list(arguments)))

    def _observed(self, case: Case, device: torch.device) -> Outcome:
        if self.framework == "torch":
            return super()._observed(case, device)
        arrays = [in_float64(each).copy() for each in self.draw(case, 0, device)]
        before = [each.copy() for each in arrays]
        found = leaves(self._reference(*self.pattern(case).arguments(arrays)))
        written = [i for i, each in enumerate(arrays) if not np.array_equal(each, before[i], equal_nan=True)]
        returned = [i for i, each in enumerate(arrays) if any(shares_memory(each, one) for one in found)]
        return Outcome(tuple(written), len(found) + len(set(written) - set(returned)), views=False)

    def native(self, case: Case) -> Function:
        return owned(self._on_tensors_alone(self._reference, case))

    def stated(self, what: str, case: Case) -> Any:
        found = self._stated[what]
        return found(case) if callable(found) else found

    # Reading the file

    def _annotated(self) -> dict[str, str]:
        """The annotated shape of each parameter as a text, such as `M N`."""
        hints = typing.get_type_hints(self._reference)
        found: dict[str, str] = {}
        for name, parameter in inspect.signature(self._reference).parameters.items():
            text = getattr(hints.get(name), "dim_str", None)
            if text is not None:
                found[name] = text
            elif parameter.default is inspect.Parameter.empty:
                raise UsageError(
                    f"{self._name}: {name} of reference has no annotated shape, as x: Float[Tensor, 'M N'] "
                    "of jaxtyping; annotate it, or define inputs(case)"
                )
        for name, text in found.items():
            if any(not all(each.isidentifier() for each in _names(token)) for token in text.split()):
                raise UsageError(f"{self._name}: the shape {text!r} of {name} must be names, numbers and products")
        return found

    def _sizes(self, given: Sequence[object]) -> tuple[tuple[str, ...], tuple[Shape, ...]]:
        """Names of the dimensions, and the sizes that the file gives as `shapes`."""
        texts = [",".join(f"{k}={v}" for k, v in each.items()) if isinstance(each, dict) else each for each in given]
        if not all(isinstance(each, str) for each in texts):
            raise UsageError(f"{self._name}: shapes must be texts such as 'M=512,N=512'; got {given!r}")
        tokens = [token for text in self._shapes_of_operands.values() for token in text.split()]
        dims = tuple(dict.fromkeys(name for token in tokens for name in _names(token) if name.isidentifier()))
        if not dims and texts:
            parts = str(texts[0]).split(",")
            dims = tuple(dict.fromkeys(name.strip() for part in parts for name in part.split("=")[:-1]))
        found = [
            tuple(sizes.values())
            for text in texts
            for sizes in shapes_by_name.parse(str(text), self._name, dims, is_square=False)
        ]
        return dims, tuple(found) or (((),) if not dims else ())

    def _checked_dtypes(self, given: object) -> tuple[str, ...]:
        names = [given] if isinstance(given, str) else list(given) if isinstance(given, tuple | list) else [given]
        full = tuple(full_name(str(each).removeprefix("torch.")) for each in names)
        valid = (*DTYPES, DOUBLE)
        if not full or any(each not in valid for each in full):
            raise UsageError(f"{self._name}: dtypes must be of {', '.join(valid)}; got {given!r}")
        return full


def _shapes(texts: Iterable[str], case: Case) -> list[Shape]:
    """The annotated shapes in a case."""
    sizes = dict(case.dims)
    return [tuple(int(eval(token, {"__builtins__": {}}, sizes)) for token in text.split()) for text in texts]


def in_float64(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's numbers as a NumPy array; floating-point ones in float64."""
    found: np.ndarray[Any, Any] = (tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy()
    return found


def _in_float64(value: Any) -> Any:
    return in_float64(value) if isinstance(value, torch.Tensor) else value


def _names(token: str) -> list[str]:
    """The names in a size such as `N`, `3*E` or `64`; any other text is returned unchanged, as the only name."""
    try:
        tree = ast.parse(token, mode="eval")
    except SyntaxError:
        return [token]
    allowed = (ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.operator)
    if not all(isinstance(each, allowed) or type(getattr(each, "value", None)) is int for each in ast.walk(tree)):
        return [token]
    return [each.id for each in ast.walk(tree) if isinstance(each, ast.Name)]


def _imports(tree: ast.Module, package: str) -> bool:
    found = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    ]
    return any(name.split(".")[0] == package for name in found)


def _public(tree: ast.Module) -> str:
    """The public functions and classes that the file defines itself, not what it imports."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return ", ".join(names[:8]) or "no function"
