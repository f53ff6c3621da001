"""Loads the program of a file that defines an operation, by the kind of the file."""

from __future__ import annotations

from collections.abc import Callable

from suite.custom.gpumode import GpuModeFile
from suite.custom.kernelbench import KernelBenchFile
from suite.custom.program import Program
from suite.custom.reference import ReferenceFile
from suite.problem.source import Kind, Source

KINDS: dict[Kind, Callable[[Source], Program]] = {
    "reference": ReferenceFile,
    "kernelbench": KernelBenchFile,
    "gpumode": GpuModeFile,
}


def load(source: Source) -> Program:
    """The file's program. Raises `UsageError` for a file that has changed, or that lacks a required definition."""
    return KINDS[source.kind](source)
