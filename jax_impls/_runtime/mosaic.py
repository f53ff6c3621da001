"""Pallas for Mosaic GPU with kernel names that let JAX's compilation cache find a kernel in any process.

Mosaic names the dump files of a kernel by the number of kernels that the process has lowered. The name is an attribute
of the kernel's module, and so part of the cache key. A process that has lowered another number of kernels then misses
the cache. Here the name has no number, and the dump of a kernel overwrites that of another kernel of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src.lib import mosaic_gpu_dialect as dialect
from jax.experimental.pallas import mosaic_gpu as plgpu

__all__ = ["plgpu"]

NAME = "mosaic_gpu.dump_basename"


def without_count(get_or_set: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps the dialect's `get_or_set_dump_options`: first sets the name of the module."""

    def dump_options(module: Any) -> Any:
        attributes = module.operation.attributes
        if NAME not in attributes:
            attributes[NAME] = attributes["sym_name"]
        return get_or_set(module)

    return dump_options


if hasattr(dialect, "get_or_set_dump_options"):  # from jaxlib 0.11.1 on
    dialect.get_or_set_dump_options = without_count(dialect.get_or_set_dump_options)
