"""Pallas for Mosaic GPU, whose kernels JAX's compilation cache finds again, whatever else a process has lowered before.

Mosaic names the files to which it may dump a kernel by a count of the process's kernels. The name is an attribute of
the kernel's module, so it is part of the cache's key: only a process that had lowered as many kernels before found it.
Here the name has no count, and a dump replaces that of another kernel of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src.lib import mosaic_gpu_dialect as dialect
from jax.experimental.pallas import mosaic_gpu as plgpu

__all__ = ["plgpu"]

NAME = "mosaic_gpu.dump_basename"


def without_count(get_or_set: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The dialect's `get_or_set_dump_options`, for a module that has a name already."""

    def dump_options(module: Any) -> Any:
        attributes = module.operation.attributes
        if NAME not in attributes:
            attributes[NAME] = attributes["sym_name"]
        return get_or_set(module)

    return dump_options


if hasattr(dialect, "get_or_set_dump_options"):  # from jaxlib 0.11.1 on
    dialect.get_or_set_dump_options = without_count(dialect.get_or_set_dump_options)
