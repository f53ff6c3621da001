"""Builds a .cu, by nvcc for a GPU or by the C++ compiler for the CPU, and calls its functions.

    build.launch("vector_add/vector_add", "vector_add", a.device, a, b, out, out.numel(), build.dtype_code(out.dtype))

- calling.py: `launch` calls an extern "C" function of a .cu on a device; `launched` lists those called so far;
  `DTYPES` and `dtype_code` are the codes of dtypes in a .cu; `CudaError`.
- libraries.py: `library` builds a .cu; `requires` and `supports` say where it runs; `compile_only`, `resources`, `ptx`
  and `sass` compile for inspection, without a GPU.
- compiler.py: commands and flags; `missing` names missing tools; `newest_arch` and `Resources` describe nvcc's output.
- cache.py: the cache of builds; `BuildError`. rewrite.py: signatures, local headers, and the text for the CPU.
"""

from typing import TYPE_CHECKING, Any

from .cache import BuildError
from .compiler import Resources, missing, newest_arch
from .libraries import HERE, HOST_HEADERS, compile_only, library, ptx, requires, resources, sass, supports

if TYPE_CHECKING:
    from .calling import DTYPES, Bound, CudaError, LaunchRecord, checked, counted, dtype_code, launch, launched

__all__ = [
    "DTYPES",
    "HERE",
    "HOST_HEADERS",
    "Bound",
    "BuildError",
    "CudaError",
    "LaunchRecord",
    "Resources",
    "checked",
    "compile_only",
    "counted",
    "dtype_code",
    "launch",
    "launched",
    "library",
    "missing",
    "newest_arch",
    "ptx",
    "requires",
    "resources",
    "sass",
    "supports",
]


def __getattr__(name: str) -> Any:
    """Imports calling.py when one of its names is first used: calling.py needs torch, finding a compiler does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import calling

    value = globals()[name] = getattr(calling, name)  # later uses find the name without this function
    return value
