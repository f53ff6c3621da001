"""What to run, as the command line asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suite.models.workload import Workload
from suite.problem.operation import Operation
from suite.problem.option import Value


@dataclass(frozen=True)
class Selection:
    """Names and filters of `compare` and `tune`; empty means all, or the default. `runner.plan.plan` checks them.

    operations: names, or `all`. implementations: patterns of names, such as `cuda*`; excluded: of those left out.
    dtypes, precisions: names. shapes: texts such as `M=512,N=512,K=512`, of the one operation chosen.
    options: values by name of option. inputs: names of families, `telling`, `all` or `none`.
    sweep: the operation's sizes from tiny to large. files: those of `--with`. workload: shapes of several operations.
    own: an operation of a user's file, in the place of names.
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
    workload: Workload | None = None
    own: Operation | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of inputs that cases are asked for; `none` is the default ones without telling cases."""
        return tuple(name for name in self.inputs if name != "none")

    @property
    def telling(self) -> bool:
        """Whether rows also need the telling cases: in every run that asks for no inputs."""
        return not self.inputs
