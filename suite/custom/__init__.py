"""Operations that a user's file defines: a reference in PyTorch or NumPy, or a problem of KernelBench.

The parent process gets a description of the operation (`About`) from a worker, and never runs the file.
Workers and external processes load the file by its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.problem.source import Source

if TYPE_CHECKING:  # these import torch, which must happen after the frameworks are prepared for the device
    from suite.custom.about import About
    from suite.custom.operation import CustomOperation

_known: dict[Source, CustomOperation] = {}


def find(source: Source) -> CustomOperation:
    """The operation of a file. Loads the file unless `from_description` has been called for it."""
    if source not in _known:
        from suite.custom.load import load
        from suite.custom.operation import CustomOperation

        program = load(source)
        _known[source] = CustomOperation(source, program.about(), program)
    return _known[source]


def from_description(source: Source, about: About) -> CustomOperation:
    """The operation that another process has described. Later calls of `find` return it."""
    from suite.custom.operation import CustomOperation

    _known[source] = CustomOperation(source, about)
    return _known[source]
