"""The kernel suite as one package.

    import kernel_suite
    from kernel_suite.triton_kernels.matmul import matmul
    frame = kernel_suite.compare("matmul", shapes=["M=512,N=512,K=512"], implementations=["triton*", "torch"])

The installed package has the folders of the tree inside: `kernel_suite.suite`, `kernel_suite.triton_kernels`, ...
In a checkout they lie beside this folder, and `kernel_suite.suite` is another name for the module `suite`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if not Path(__file__).with_name("suite").is_dir():
    from kernel_suite import _checkout

    _checkout.install()

from kernel_suite import suite as _suite

if TYPE_CHECKING:
    from suite.api import cases, check, compare, report, time

__version__ = _suite.__version__
__all__ = ["cases", "check", "compare", "report", "time"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kernel_suite' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(_suite, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
