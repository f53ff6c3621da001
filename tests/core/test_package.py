"""Names of modules, the command in messages, and the search path of processes, in a checkout and installed."""

from __future__ import annotations

import site
import sys

import pytest

from suite.core import package
from suite.core.paths import ROOT


def test_in_a_checkout_the_folders_are_top_level_packages() -> None:
    assert package.qualified("suite.ops.matmul") == "suite.ops.matmul"
    assert package.SEARCHED == ROOT


@pytest.mark.parametrize(
    ("started", "prefix", "expected"),
    [
        ("/home/me/checkout/suite/__main__.py", "", "python -m suite"),
        ("/home/me/checkout/kernel_suite/__main__.py", "", "python -m kernel_suite"),
        ("/site-packages/kernel_suite/__main__.py", "kernel_suite.", "python -m kernel_suite"),
        ("/home/me/.venv/bin/kernel-suite", "", "kernel-suite"),
        ("/home/me/script.py", "kernel_suite.", "kernel-suite"),
        ("/site-packages/pytest/__main__.py", "", "python -m suite"),
        ("", "", "python -m suite"),
    ],
)
def test_messages_repeat_the_command_that_was_used(
    started: str, prefix: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started] if started else [])
    monkeypatch.setattr(package, "PREFIX", prefix)
    assert package.command() == expected


@pytest.mark.parametrize(
    ("extra", "prefix", "expected"),
    [
        ("jax", "", "pip install -c constraints.txt '.[jax]'"),
        ("", "", "pip install -c constraints.txt ."),
        ("jax", "kernel_suite.", "pip install 'kernel-suite[jax]'"),
        ("", "kernel_suite.", "pip install kernel-suite"),
    ],
)
def test_the_command_that_installs_an_extra(
    extra: str, prefix: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "PREFIX", prefix)
    assert package.install_command(extra, "constraints.txt") == expected


def test_a_search_path_has_no_folder_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert package.search_path(None) == str(ROOT)
    assert package.search_path("/mine:/yours") == f"{ROOT}:/mine:/yours"
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(ROOT)])
    assert package.search_path("/mine") == "/mine"
    assert package.search_path(None) == ""
