"""A brought file in its worker: loaded by its path, called under watch, its errors told with its own line.

It is loaded under a name that nothing else has, and its folder comes last on `sys.path`: it can import what lies beside
it, and shadows nothing, whatever the files there are called. Nothing is written into its folder. What is restored after
an import or a call is in `guard.py`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from suite.core.paths import ROOT
from suite.implementations import explain
from suite.implementations.builtin import Implementation
from suite.implementations.external.side_effects import Remarks, Watch
from suite.implementations.external.source import digest_of

_loaded: dict[tuple[Path, str, str], tuple[ModuleType, Remarks]] = {}
_neighbours: dict[Path, set[str]] = {}
"""Modules that came from a brought file's folder."""
_guests: dict[Path, Guest] = {}


class GuestError(Exception):
    """A brought file that cannot be used, or that would have ended the process. The text is the whole reason."""


class Guest:
    """A brought file's function for an operation: called like it, watched, and told about in `remarks`."""

    def __init__(self, implementation: Implementation) -> None:
        module, self._of_import = _load(implementation)
        assert implementation.path is not None
        function = getattr(module, implementation.operation, None)
        if not callable(function):
            raise GuestError(f"{implementation.operation} is not a function but {type(function).__name__}")
        self.function: Callable[..., Any] = function
        self._of_calls = Remarks(implementation.path, implementation.line)
        self.changes = False
        """Whether the last call changed what had to be restored."""
        self._traced = False
        self._random_states: dict[str, Any] = {}
        _guests[implementation.path] = self

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """One call. If the one before it did something that no line is known for, this one is traced."""
        watch = Watch(self._of_calls, traced=self._traced, own=self._random_states)
        try:
            with watch, _contained():
                return self.function(*inputs, **arguments)
        finally:
            self.changes, self._traced = watch.changed, watch.unplaced

    @property
    def remarks(self) -> list[str]:
        return list(dict.fromkeys((*self._of_import.texts(), *self._of_calls.texts())))

    def to_be_timed(self) -> Callable[..., Any]:
        """The function itself; with the watch around it, and at its cost, if its calls change what others rely on."""
        return self if self.changes else self.function


def remarks(implementation: Implementation) -> list[str]:
    """What a brought file's import and its calls so far did that a function of its kind has no business to do."""
    guest = _guests.get(implementation.path) if implementation.path is not None else None
    return [] if guest is None else guest.remarks


def load(implementation: Implementation) -> ModuleType:
    """The module of a brought file, imported once for each version of the file."""
    return _load(implementation)[0]


def _load(implementation: Implementation) -> tuple[ModuleType, Remarks]:
    path = implementation.path
    assert path is not None
    if implementation.fault:
        raise GuestError(implementation.fault)
    key = path, implementation.digest, implementation.operation if path.suffix == ".cu" else ""
    if key not in _loaded:
        for package in implementation.adapter.packages:
            importlib.import_module(package)  # what a framework does to the process is not the file's doing
        source, remarks = path.read_bytes(), Remarks(path)
        if digest_of(source) != implementation.digest:
            raise GuestError(f"{path.name} changed while the run was going on")
        module = _launcher(path, implementation.operation) if path.suffix == ".cu" else _import(path, source, remarks)
        _loaded[key] = module, remarks
    return _loaded[key]


def _import(path: Path, source: bytes, remarks: Remarks) -> ModuleType:
    name = f"with__{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    _forget_neighbours(path.parent)
    search_path, writes_bytecode, known = list(sys.path), sys.dont_write_bytecode, set(sys.modules)
    sys.modules[name] = module
    sys.path.append(str(path.parent))
    sys.dont_write_bytecode = True
    try:
        with Watch(remarks, traced=True), _contained():
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.dont_write_bytecode = writes_bytecode
        sys.path[:] = search_path + [folder for folder in sys.path if folder not in search_path]
        new = {name for name in set(sys.modules) - known if _lies_in(sys.modules[name], path.parent)}
        _neighbours.setdefault(path.parent, set()).update(new)
    return module


def _forget_neighbours(folder: Path) -> None:
    """Two files may each have a `helpers.py` beside them: what another folder has given is imported anew."""
    for other in set(_neighbours) - {folder, ROOT}:
        for name in _neighbours.pop(other):
            sys.modules.pop(name, None)
        with contextlib.suppress(ValueError):
            sys.path.remove(str(other))


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = Path(getattr(module, "__file__", None) or "/")
    return folder in (file.parent, file.parent.parent if file.name == "__init__.py" else None)


def _launcher(path: Path, operation: str) -> ModuleType:
    """cuda_ref's own launcher of the operation, its text executed once more, with launches that go to the file."""
    from cuda_ref import build

    def launch(source: str, function: str, device: Any, *arguments: Any) -> None:
        build.launch(path, function, device, *arguments)

    spec = importlib.util.spec_from_file_location(f"with__{path.stem}", ROOT / "cuda_ref" / f"{operation}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["build"] = SimpleNamespace(**{**vars(build), "launch": launch})
    return module


@contextlib.contextmanager
def _contained() -> Iterator[None]:
    """What would end the process becomes an error like others."""
    try:
        yield
    except Exception:
        raise
    except SystemExit as error:
        raise GuestError(f"called sys.exit({error.code!r})").with_traceback(error.__traceback__) from None
    except BaseException as error:
        raise GuestError(f"raised {type(error).__name__}").with_traceback(error.__traceback__) from None


def reason(error: BaseException, implementation: Implementation, device_type: str) -> str:
    """The error of a brought file in one line, with the innermost line of the file's own that led to it."""
    path = implementation.path
    assert path is not None
    text = explain.what(error, device_type).removeprefix(f"{GuestError.__name__}: ").replace(str(path), path.name)
    line = _own_line(error, path)
    if isinstance(error, SyntaxError):
        text = text.replace(f" ({path.name}, line {line})", "")
    if line is None and isinstance(error, TypeError) and path.suffix == ".py":
        text += f"; it is called as {signature(implementation.operation)}"
    if line is None and not re.search(rf"{re.escape(path.name)}:\d", text):
        line = implementation.line
    return text + (f" ({path.name}:{line})" if line is not None else "")


def _own_line(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def signature(operation: str) -> str:
    """`matmul(a, b, *, precision='ieee')`: how the suite's own function reads, without its types."""
    tree = ast.parse((ROOT / "torch_impls" / f"{operation}.py").read_text(encoding="utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == operation)
    for each in ast.walk(function.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"{operation}({ast.unparse(function.args)})"
