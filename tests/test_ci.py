"""`.ci/run` installs a browser where it can, goes on where it cannot, and runs lint and tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from suite.core.paths import ROOT

BROWSER = "Chromium could not be installed: the tests of the report's page are skipped"


def ran(path: Path, **programs: str) -> tuple[list[str], str]:
    """The calls and messages of `.ci/run` on a machine that has only these programs, each with its behaviour."""
    programs = {"make": "", **programs}
    for name, body in programs.items():
        (path / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {path / "calls"}\n{body}\n')
        (path / name).chmod(0o755)
    (path / "dirname").symlink_to(str(shutil.which("dirname")))
    done = subprocess.run(
        ["/bin/bash", ROOT / ".ci" / "run"], env={"PATH": str(path)}, capture_output=True, text=True, check=True
    )
    return (path / "calls").read_text().splitlines(), done.stderr


INSTALL = ["apt-get -qq update", "apt-get -qq --yes --no-install-recommends install chromium"]
MAKE = ["make lint", "make test", "make thorough"]


@pytest.mark.parametrize(
    ("programs", "calls"),
    [
        ({"apt-get": "", "id": "echo 0"}, ["id -u", *INSTALL, *MAKE]),
        ({"apt-get": "", "id": "echo 1000"}, ["id -u", *MAKE]),
        ({"apt-get": "", "id": "echo 0", "chromium": ""}, MAKE),
        ({}, MAKE),
    ],
    ids=["installs", "not_root", "has_one", "no_apt"],
)
def test_a_browser_is_installed_where_it_can_be(tmp_path: Path, programs: dict[str, str], calls: list[str]) -> None:
    assert ran(tmp_path, **programs) == (calls, "")


def test_a_failed_installation_is_said_and_the_tests_run(tmp_path: Path) -> None:
    calls, said = ran(tmp_path, **{"apt-get": "exit 100", "id": "echo 0"})
    assert calls[-3:] == MAKE
    assert BROWSER in said
