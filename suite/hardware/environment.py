"""Makes the environment record of a run: device, versions, command, commit. It names no host, user or home folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.hardware.datasheet import peaks
from suite.hardware.host import cpu_facts
from suite.hardware.monitor import devices
from suite.hardware.threads import native_threads

PACKAGES = (
    "torch",
    "triton",
    "jax",
    "jaxlib",
    "jax-cuda13-plugin",
    "jax-cuda12-plugin",
    "numpy",
    "ml_dtypes",
    "pandas",
    "cupti-python",
    "nvidia-cuda-cupti",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia-ml-py",
)


COMMIT_VARIABLE = "KERNEL_SUITE_COMMIT"
"""The environment variable with the commit of a copy of the tree that has no history."""


def environment_record(device_type: str, index: int = 0, commit: str = "") -> dict[str, Any]:
    """The record, as JSON values, of a run on `cpu` or on the GPU `cuda` `index`.

    `commit` names the commit of a copy of the tree without its history. Raises `UsageError` as `git_state` does.
    """
    return {
        "date_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command_line(sys.argv),
        "device": device_facts(device_type, index),
        "host": {**cpu_facts(), "threads": native_threads()},
        "os": {"name": os_name(), "machine": platform.machine()},
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := package_version(name)) is not None},
        "toolkits": {"nvcc": nvcc_version(), "g++": gxx_version()},
        "git": git_state(ROOT, commit),
    }


def device_facts(device_type: str, index: int = 0) -> dict[str, Any]:
    """Properties of the device, with its datasheet peaks."""
    if device_type == "cpu":
        return {"type": "cpu", "name": cpu_facts()["name"], "peaks": None}
    found = next((device for device in devices() if device["index"] == index), {"name": ""})
    best = peaks(found["name"])
    cited = None if best is None else {"gb_per_s": best.gb_per_s, "tflops": best.tflops, "source": best.source}
    return {"type": "cuda", **found, "peaks": cited}


@cache
def package_version(name: str) -> str | None:
    """The installed version of a distribution, or None. It is kept: each row has versions, and reading one takes 0.5
    ms."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def nvcc_version() -> str | None:
    """The version of the nvcc on PATH, or None."""
    found = re.search(r"release [\d.]+, V([\d.]+)", output_of("nvcc", "--version") or "")
    return found.group(1) if found else None


def gxx_version() -> str | None:
    """The version of the g++ on PATH, or None."""
    text = output_of("g++", "-dumpfullversion", "-dumpversion")
    return text.strip() or None if text else None


def os_name(release: Path = Path("/etc/os-release")) -> str:
    """The distribution's name and version; those of the kernel if `release` is missing."""
    try:
        found = re.search(r'^PRETTY_NAME="?([^"\n]*)', release.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.platform(terse=True)


def git_state(root: Path, commit: str = "") -> dict[str, Any] | None:
    """The commit of the checkout in `root`, and whether files differ from it; None if `root` is not a checkout's top.

    For a copy without its history, on another machine for example, `commit` or COMMIT_VARIABLE gives the commit;
    whether files differ is then unknown. Raises `UsageError` for a text that is no commit, or not the checkout's.
    """
    source = "--commit" if commit else COMMIT_VARIABLE
    given = commit or os.environ.get(COMMIT_VARIABLE, "")
    if given and not re.fullmatch(r"[0-9a-f]{7,40}", given):
        raise UsageError(
            f"{source} {given!r}: must be 7 to 40 digits of a commit's hash, as `git rev-parse HEAD` prints"
        )
    top = output_of("git", "-C", str(root), "rev-parse", "--show-toplevel")
    found = output_of("git", "-C", str(root), "rev-parse", "HEAD")
    if top is None or found is None or Path(top.strip()).resolve() != root.resolve():
        return {"commit": given, "dirty": None} if given else None
    head = found.strip()
    if not head.startswith(given):
        raise UsageError(
            f"{source} {given}: this checkout is at {head}; leave it out, it is for copies without history"
        )
    # Untracked files count, because a new file is a new implementation.
    changes = output_of("git", "-C", str(root), "status", "--porcelain")
    return {"commit": head, "dirty": changes is None or bool(changes.strip())}


def command_line(argv: list[str]) -> str:
    """The command as text. Absolute paths become relative to the working directory, or their last part outside it."""
    first, *rest = argv or [""]
    program = f"python -m {Path(first).parent.name}" if Path(first).name == "__main__.py" else Path(first).name
    return " ".join([program, *(_shorten(argument) for argument in rest)])


def _shorten(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if equals and name.startswith("-"):
        return f"{name}={_shorten(value)}"
    path = Path(argument)
    if not path.is_absolute():
        return argument
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name


def output_of(*command: str) -> str | None:
    """Standard output of a short command; None if the command is missing, fails or takes more than 20 s."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
