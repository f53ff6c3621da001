"""The selection of a run: operations, implementations and cases, as the command line names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suite.models.workload import Workload
from suite.problem.operation import Operation
from suite.problem.option import Value


@dataclass(frozen=True)
class Selection:
    """Names and filters of `compare` and `tune`. An empty one means all, or the default. `plan.plan` checks them.

    operations: names, or `all`.
    implementations: patterns of names, such as `cuda*`. excluded: patterns of names to leave out.
    dtypes, precisions: names.
    shapes: texts such as `M=512,N=512,K=512`, for a single operation.
    options: values by name of option.
    inputs: names of families of inputs, `telling`, `all` or `none`.
    sweep: run the operation's sizes from tiny to large.
    files: the files of `--with`.
    workloads: shapes of several operations, from layers of a model.
    ranks: processes of an operation over several; 0 for the default.
    own: an operation that a user's file defines, instead of names.
    """

    operations: tuple[str, ...]
    implementations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    sweep: bool = False
    files: tuple[Path, ...] = ()
    workloads: tuple[Workload, ...] = ()
    ranks: int = 0
    own: Operation | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """The families of inputs asked for. `none` is no family: it means default cases without telling cases."""
        return tuple(name for name in self.inputs if name != "none")

    @property
    def telling(self) -> bool:
        """True if rows must also pass the telling cases: in every run without `--inputs`."""
        return not self.inputs
