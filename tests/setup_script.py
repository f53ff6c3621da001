"""Loads setup.py, which is no module of a package."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

from suite.core.paths import ROOT


@cache
def load() -> ModuleType:
    """The functions of setup.py. Nothing is built."""
    spec = importlib.util.spec_from_file_location("kernel_suite_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
