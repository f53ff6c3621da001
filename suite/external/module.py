"""Loads a user's file in an external process, and calls its function.

A `.py` is loaded by its path, under a name that no other module has. Its folder comes last on `sys.path`: the file can
import modules beside it, and these shadow no installed package. Nothing is written into the folder. A `.cu` is launched
by a copy of the tree's launcher that is bound to that source.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from suite.core.file_version import digest_of
from suite.core.files import read_source
from suite.core.paths import ROOT
from suite.external import own_launcher
from suite.external.remarks import Remarks
from suite.external.side_effects import SideEffects
from suite.frameworks.base import Adapter


class ExternalError(Exception):
    """A user's file that cannot be used, or that tried to end the process. The text is the whole reason."""


@dataclass(frozen=True)
class Loaded:
    """A module, and the side effects of its import."""

    module: ModuleType
    remarks: Remarks


_loaded: dict[tuple[Path, str, str], Loaded] = {}
_neighbours: dict[Path, set[str]] = {}
"""Names of the modules imported from each folder."""
_functions: dict[Path, ExternalFunction] = {}


class ExternalFunction:
    """The function of a user's file for an operation. Each call undoes its side effects and adds them to `remarks`.

    `line` is the line of its definition. `adapt` turns the file's object into the function to call. Raises
    `ExternalError` if the object is not callable.
    """

    def __init__(
        self,
        loaded: Loaded,
        name: str,
        path: Path,
        line: int | None,
        adapt: Callable[[Any], Callable[..., Any]] = lambda function: function,
    ) -> None:
        function = getattr(loaded.module, name, None)
        if not callable(function):
            raise ExternalError(f"{name} is not a function but {type(function).__name__}")
        function = self.function = adapt(function)
        self.__wrapped__ = function  # gives this object the signature of the function
        self.changes = False
        """True if the last call changed something that had to be undone."""
        self._of_import = loaded.remarks
        self._of_calls = Remarks(path, line)
        self._traced = False
        _functions[path] = self

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """One call, traced if the line of a side effect of the call before is unknown."""
        effects = SideEffects(self._of_calls, traced=self._traced)
        try:
            with effects, _contained():
                return self.function(*inputs, **arguments)
        finally:
            self.changes, self._traced = effects.changed, effects.unplaced

    @property
    def repeatable(self) -> Callable[..., Any]:
        """The file's own function, whose call is far shorter, if the last call changed nothing; else this object."""
        return self if self.changes else self.function

    @property
    def remarks(self) -> list[str]:
        """Side effects of the import and of all calls."""
        return list(dict.fromkeys((*self._of_import.texts(), *self._of_calls.texts())))


def latest_function(path: Path) -> ExternalFunction | None:
    """The latest `ExternalFunction` of a file in this process; None if there is none."""
    return _functions.get(path)


def load(path: Path, digest: str, operation: str, adapter: Adapter, *, own: bool) -> Loaded:
    """Import a file once for each of its versions. Raises `ExternalError` if the file no longer has that digest.

    own: true for an operation of the user's, whose .cu has no launcher in the tree; `own_launcher` calls it.
    The packages of its framework are imported first, so that the file gets no remarks for their side effects.
    """
    key = path, digest, operation if path.suffix == ".cu" else ""
    if key not in _loaded:
        for package in adapter.packages:
            importlib.import_module(package)
        source, remarks = read_source(path), Remarks(path)
        if digest_of(path, source) != digest:
            raise ExternalError(f"{path.name}, or a file that it uses, changed while the run was going on")
        with adapter.importing():
            if path.suffix == ".cu":
                module = _own_source(path, operation) if own else _launcher(path, operation)
            else:
                module = _import(path, source, remarks)
        _loaded[key] = Loaded(module, remarks)
    return _loaded[key]


def _import(path: Path, source: bytes, remarks: Remarks) -> ModuleType:
    name = f"with__{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    _unload_neighbours(path.parent)
    search_path, writes_bytecode, known = list(sys.path), sys.dont_write_bytecode, set(sys.modules)
    sys.modules[name] = module
    sys.path.append(str(path.parent))
    sys.dont_write_bytecode = True
    try:
        with SideEffects(remarks, traced=True), _contained():
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.dont_write_bytecode = writes_bytecode
        sys.path[:] = search_path + [folder for folder in sys.path if folder not in search_path]
        new = {name for name in set(sys.modules) - known if _is_inside(sys.modules[name], path.parent)}
        _neighbours.setdefault(path.parent, set()).update(new)
    return module


def _unload_neighbours(folder: Path) -> None:
    """Unload modules from the folders of other files: two files may each have a `helpers.py` beside them."""
    for other in set(_neighbours) - {folder, ROOT}:
        for name in _neighbours.pop(other):
            sys.modules.pop(name, None)
        with contextlib.suppress(ValueError):
            sys.path.remove(str(other))


def _is_inside(module: ModuleType, folder: Path) -> bool:
    file = Path(getattr(module, "__file__", None) or "/")
    return folder in (file.parent, file.parent.parent if file.name == "__init__.py" else None)


def _own_source(path: Path, operation: str) -> ModuleType:
    """A module that stands for a .cu: it has `own_launcher.launcher` for its path under the operation's name."""
    module = ModuleType(f"with__{path.stem}")
    setattr(module, operation, partial(own_launcher.launcher, path))
    return module


def _launcher(path: Path, operation: str) -> ModuleType:
    """A copy of `cuda_ref/<operation>/__init__.py` whose launches go to the source `path`."""
    from cuda_ref import build
    from cuda_ref.build import rewrite

    def launch(source: str, function: str, device: Any, *arguments: Any) -> None:
        if function != operation and function not in rewrite.launchers(path.read_text(encoding="utf-8")):
            raise NotImplementedError(f"{path.name} has no launcher {function}")
        build.launch(path, function, device, *arguments)

    spec = importlib.util.spec_from_file_location(f"with__{path.stem}", ROOT / "cuda_ref" / operation / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = {name: getattr(build, name) for name in build.__all__}
    vars(module)["build"] = SimpleNamespace(**{**names, "launch": launch})
    return module


@contextlib.contextmanager
def _contained() -> Iterator[None]:
    """Turn exceptions that would end the process (`SystemExit`, `KeyboardInterrupt`) into `ExternalError`."""
    try:
        yield
    except Exception:
        raise
    except SystemExit as error:
        raise ExternalError(f"called sys.exit({error.code!r})").with_traceback(error.__traceback__) from None
    except BaseException as error:
        raise ExternalError(f"raised {type(error).__name__}").with_traceback(error.__traceback__) from None
