"""One adapter a framework, found by its file name: `frameworks/jax.py`, or `frameworks/triton/`, defines `ADAPTER`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from suite.frameworks.base import Adapter


@cache
def names() -> tuple[str, ...]:
    """Names of all frameworks, in the order of their adapters' `rank`."""
    found = [m.name for m in pkgutil.iter_modules(__path__) if m.name != "base" and not m.name.startswith("_")]
    return tuple(sorted(found, key=lambda name: (get(name).rank, name)))


@cache
def get(name: str) -> Adapter:
    """The adapter of one framework. Imports the adapter, not the framework."""
    found = importlib.import_module(f"{__name__}.{name}").ADAPTER
    assert isinstance(found, Adapter)
    return found
