"""The default folder of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.core import paths
from suite.hardware.device import Device

H200 = Device("cuda", name="NVIDIA H200")


def test_results_do_not_depend_on_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert H200.results_folder == paths.ROOT / "results" / "nvidia-h200"
    assert Device("cpu", name="A B").results_folder == paths.ROOT / "results" / "cpu-a-b"


@pytest.mark.parametrize(("folder", "shown"), [(".", "results/nvidia-h200"), ("results", "nvidia-h200")])
def test_below_the_working_directory_the_path_is_relative(
    folder: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths.ROOT / folder)
    assert H200.results_folder == Path(shown)


@pytest.mark.parametrize("given", [True, False], ids=["XDG_DATA_HOME", "home"])
def test_results_of_an_installed_package_are_data_of_the_user(
    given: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path / "site-packages")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data") if given else "")
    data = tmp_path / "data" if given else tmp_path / "home" / ".local" / "share"
    assert H200.results_folder == data / "kernel-suite" / "results" / "nvidia-h200"
