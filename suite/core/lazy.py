"""Deferred imports: a command that plans and tabulates needs only the names of a framework's types."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """A module that runs at the first access to an attribute.

    That includes `__path__`, so that an import of a submodule runs the module first.
    """

    def __getattr__(self, name: str) -> Any:
        object.__setattr__(self, "__class__", ModuleType)
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        try:
            with without_collections():
                spec.loader.exec_module(self)
        except BaseException:
            sys.modules.pop(self.__name__, None)
            raise
        return getattr(self, name)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage among the objects of modules that are imported here, now and later: they stay alive."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def import_when_used(name: str) -> None:
    """Let `import NAME` return at once in this process; the first use of the module runs it. torch takes 1.5 s.

    Does nothing for a module that is imported already, or that is not installed.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    vars(module).pop("__path__", None)
    module.__class__ = _LazyModule
    sys.modules[name] = module
