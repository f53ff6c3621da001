"""Names of modules and of the command: as in a checkout, or below the installed package `kernel_suite`."""

from __future__ import annotations

import site
import sys
from pathlib import Path

from suite.core.paths import ROOT

PREFIX = __name__.removesuffix("suite.core.package")
"""`kernel_suite.` in an installed package, where every folder of the tree lies in that package; empty in a checkout."""
SEARCHED = ROOT.parent if PREFIX else ROOT
"""The folder in which Python finds the suite and the kernel folders."""


def qualified(module: str) -> str:
    """The full name of a module of the tree: `suite.ops.matmul` or `kernel_suite.suite.ops.matmul`."""
    return PREFIX + module


def search_path(inherited: str | None) -> str:
    """The PYTHONPATH with which another process finds the suite. `inherited` is the value of this process.

    An installed package needs no entry: one would put all installed packages before the standard library.
    """
    own = [] if str(SEARCHED) in (*site.getsitepackages(), site.getusersitepackages()) else [str(SEARCHED)]
    return ":".join([*own, *([inherited] if inherited else [])])


def command() -> str:
    """The words before a command's name, for messages: those with which this process was started, if they are known."""
    started = Path(sys.argv[0] if sys.argv else "")
    if started.name == "__main__.py" and started.parent.name in ("suite", "kernel_suite"):
        return f"python -m {started.parent.name}"
    return "kernel-suite" if PREFIX or started.name == "kernel-suite" else "python -m suite"


def install_command(extra: str = "", constraints: str = "") -> str:
    """The command that installs the suite with an extra. `constraints` is a file of the checkout, with its versions."""
    extras = f"[{extra}]" if extra else ""
    what = f"{'kernel-suite' if PREFIX else '.'}{extras}"
    versions = f"-c {constraints} " if constraints and not PREFIX else ""
    return f"pip install {versions}" + (f"'{what}'" if extra else what)
