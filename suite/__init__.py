"""Compares the implementations of an operation: which is right, how fast is it, how close to the device's limit?

    import kernel_suite as suite
    frame = suite.compare("matmul", shapes=["M=512,N=512,K=512"], implementations=["triton*", "torch"])

The functions are those of `suite.api`, which is imported when one of them is first used.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suite.api import cases, check, compare, report, time

__version__ = "0.1.0"
__all__ = ["cases", "check", "compare", "report", "time"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from suite.core.names import did_you_mean

        near = did_you_mean(name, __all__)
        raise AttributeError(f"module 'suite' has no attribute {name!r}; it has {', '.join(__all__)}{near}")
    from suite import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _Suite(ModuleType):
    """Keeps `suite.report` the function after the package `suite/report` is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Suite
