"""The code of kernels that Triton has compiled in this process. Import this after `Adapter.prepare` of Triton."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from triton.compiler import CompiledKernel


def loaded() -> list[CompiledKernel]:
    """The kernels that are loaded on the device, in the order of their compilation.

    Triton has no list of them, since a launcher may keep a kernel outside Triton's cache.
    """
    return [each for each in gc.get_objects() if type(each) is CompiledKernel and each.module is not None]


def texts(kernels: Iterable[Any], kinds: Sequence[str]) -> dict[str, str]:
    """Their code by file name, such as `matmul_kernel.ptx`; more kernels of the same name get a number."""
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for kernel in kernels:
        seen[kernel.name] += 1
        name = kernel.name if seen[kernel.name] == 1 else f"{kernel.name}.{seen[kernel.name]}"
        found |= {f"{name}.{kind}": kernel.asm[kind] for kind in kinds if kind == "sass" or kind in kernel.asm}
    return found
