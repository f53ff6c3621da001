"""Implementations from users' files: `compare --with FILE` adds them as `with/<name of the file>`."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from suite import ops
from suite.external import module, source
from suite.hardware.device import Device
from suite.implementations import failure
from suite.implementations.arguments import defaults, definition, missing_options, missing_parameters
from suite.implementations.identity import ExternalReference
from suite.implementations.implementation import Implementation, Obstacle
from suite.problem.accepted_cases import added_operands
from suite.problem.case import Case
from suite.problem.operation import Operation


@dataclass(frozen=True)
class ExternalImplementation(Implementation):
    """A function or launcher of a user's file. `module` is empty."""

    path: Path = Path()
    digest: str = ""
    """The version of the file: the beginning of its SHA-256."""
    line: int | None = None
    """Line of the file that defines the operation."""
    fault: str = ""
    """The reason why the file cannot be used at all; empty if it can."""
    case: Case | None = None
    """The case of the calls, in a process that makes calls."""

    @classmethod
    def from_file(cls, file: source.SourceFile, op: Operation) -> ExternalImplementation:
        """The implementation of `op` in a file that was read. It has a `fault` if it cannot be used."""
        return cls(
            operation=op.name,
            name=file.name,
            framework=file.framework,
            module="",
            vendor=file.vendor or None,
            requires=file.requires,
            deterministic=file.deterministic,
            path=file.path,
            digest=file.digest,
            line=file.lines.get(op.entry),
            fault=file.fault_for(op.entry, own=op.source is not None),
            source=op.source,
        )

    @classmethod
    def from_reference(cls, reference: ExternalReference, case: Case) -> ExternalImplementation:
        """The implementation with the identity that another process sends, for calls on `case`."""
        return cls(
            operation=case.operation,
            name=reference.name,
            framework=reference.framework,
            module="",
            deterministic=reference.deterministic,
            path=Path(reference.path),
            digest=reference.digest,
            line=reference.line,
            source=case.source,
            case=case,
        )

    def for_case(self, case: Case) -> ExternalImplementation:
        return replace(self, case=case)

    @property
    def reference(self) -> ExternalReference:
        return ExternalReference(self.name, str(self.path), self.framework, self.deterministic, self.digest, self.line)

    @property
    def is_external(self) -> bool:
        return True

    def obstacle(self, device: Device, case: Case | None = None) -> Obstacle | None:
        return ("error", self.fault) if self.fault else super().obstacle(device, case)

    def _dtype_obstacle(self, case: Case) -> Obstacle | None:
        """None: the function itself refuses a dtype by raising NotImplementedError."""
        return None

    def _option_obstacle(self, case: Case) -> Obstacle | None:
        """None: `function_for` refuses an option for which the function has no parameter."""
        return None

    def load(self) -> ModuleType:
        """The file's module, imported once for each version of the file."""
        return self._load().module

    def function(self) -> module.ExternalFunction:
        """The file's function; each call undoes its side effects and records them for `remarks`."""
        assert self.case is not None
        op, case = ops.operation(self), self.case

        def adapt(entry: Any) -> Callable[..., Any]:
            own_source = self.path.suffix == ".cu" and self.source is not None
            return self.adapter.as_called(op.callable_of(entry(op, case) if own_source else entry, case=case))

        return module.ExternalFunction(self._load(), op.entry, self.path, self.line, adapt)

    def function_for(self, case: Case, inputs: int) -> module.ExternalFunction:
        """`function()`. Raises `NotImplementedError` if it has no parameters for a case's scales, as of float8, for the
        operands that an option adds, or for an option that does not have its default."""
        function = self.function()
        op = ops.operation(case)
        arguments, added = self.accepted(function, op.arguments(case)), added_operands(op, case)
        plain = len(op.operands(case)) - added
        lacking = self._defaults().keys() & missing_options(function, arguments)
        rest = {name: value for name, value in arguments.items() if name not in lacking}
        if not missing_parameters(function, inputs, rest):
            if lacking:
                given = ", ".join(f"{name}={arguments[name]!r}" for name in sorted(lacking))
                raise NotImplementedError(f"has no parameter for {given}: {signature(op)}")
        elif not missing_parameters(function, plain, rest):
            kind = ", ".join(f"{name}={value}" for name, value in case.options) if added else case.dtype
            raise NotImplementedError(f"takes {plain} arrays, and a case of {kind} has {inputs}: {signature(op)}")
        return function

    def accepted(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, without options that have their default and that the file's function does not take."""
        known, lacking = self._defaults(), missing_options(function, arguments)
        left_out = {name for name in lacking if name in known and arguments[name] == known[name]}
        return {name: value for name, value in arguments.items() if name not in left_out}

    def _defaults(self) -> Mapping[str, Any]:
        """The options of the operation's function with their defaults; none for a user's operation."""
        return {} if self.source is not None else defaults(self.operation)

    def function_to_time(self, function: Callable[..., Any], call: Callable[[], object]) -> Callable[..., Any]:
        """The file's own function; or, if its calls have side effects, the slower `function`, which undoes them."""
        assert isinstance(function, module.ExternalFunction)
        call()  # the first call may build something; side effects of this second one are those of every call
        return function if function.changes else function.function

    def versions(self) -> str:
        own = f"{self.path.name} sha256 {self.digest}" if self.digest else ""
        return ", ".join(filter(None, (super().versions(), own)))

    def remarks(self) -> list[str]:
        function = module.latest_function(self.path)
        return [] if function is None else function.remarks

    def describe_error(self, error: BaseException, device_type: str) -> str:
        """One line, with the innermost line of the file that led to the error."""
        error = failure.unwrapped(error)
        text = failure.describe_without_place(error, device_type)
        text = text.removeprefix(f"{module.ExternalError.__name__}: ").replace(str(self.path), self.path.name)
        line = _line_of(error, self.path)
        if isinstance(error, SyntaxError):
            text = text.replace(f" ({self.path.name}, line {line})", "")
        if line is None and isinstance(error, TypeError) and self.path.suffix == ".py":
            text += f"; it is called as {signature(ops.operation(self))}"
        if line is None and not re.search(rf"{re.escape(self.path.name)}:\d|\bline \d", text):
            line = self.line
        return text + (f" ({self.path.name}:{line})" if line is not None else "")

    def _load(self) -> module.Loaded:
        name = ops.operation(self).entry
        return module.load(self.path, self.digest, name, self.adapter, own=self.source is not None)


def from_files(paths: Sequence[Path], operations: Sequence[Operation]) -> dict[str, list[ExternalImplementation]]:
    """The implementations in the files, by operation.

    A file joins the operations that it defines. One that defines none of them, or is no valid source, joins all, so
    that the rows of each report it. Raises `UsageError` as `source.refuse_unusable` does.
    """
    source.refuse_unusable(paths)
    files = [source.read(path) for path in paths]
    found: dict[str, list[ExternalImplementation]] = {op.name: [] for op in operations}
    for file in files:
        joins = [op for op in operations if op.entry in file.lines] or operations
        for op in operations if file.fault else joins:
            found[op.name].append(ExternalImplementation.from_file(file, op))
    return found


def signature(op: Operation) -> str:
    """`matmul(a, b, *, precision='ieee')`: the signature of the tree's function, or the reference's, without types."""
    if op.signature:
        return op.signature
    parameters = definition(op.name)
    for each in ast.walk(parameters):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"{op.name}({ast.unparse(parameters)})"


def _line_of(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None
