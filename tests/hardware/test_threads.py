"""The number of threads of native implementations on a CPU."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from suite import hardware
from suite.core.paths import ROOT
from suite.hardware import host, threads


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [(2, "", 1), (1, "", 1), (16, "", 15), (16, "4", 4), (16, "4,2", 4), (16, "0", 15), (16, "many", 15)],
)
def test_a_core_is_left_to_others_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, cores: int, given: str, expected: int
) -> None:
    monkeypatch.setattr(host, "cores", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    assert hardware.native_threads() == expected
    assert hardware.environment_record("cpu")["host"]["threads"] == expected
    settings = hardware.thread_settings()
    assert settings["PJRT_NPROC"] == str(expected)
    assert "MKL_NUM_THREADS" not in settings


def test_torch_and_numpy_get_the_threads_and_then_their_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.ones((2, 2)) @ np.ones((2, 2))
    (blas,) = threads._openblas()
    before = torch.get_num_threads(), blas[0]()
    with hardware.native_threads_set() as count:
        assert (count, torch.get_num_threads(), blas[0]()) == (3, 3, 3)
    assert (torch.get_num_threads(), blas[0]()) == before
    with pytest.raises(KeyError), hardware.native_threads_set():
        raise KeyError
    assert (torch.get_num_threads(), blas[0]()) == before


def test_where_the_system_does_not_list_libraries_none_is_changed(tmp_path: Path) -> None:
    assert threads._openblas(tmp_path / "none") == ()


def test_threads_are_set_in_one_place() -> None:
    """Nothing else in suite/ sets a number of threads, but for the two that only put one back that they found."""
    setters = {
        str(path.relative_to(ROOT / "suite"))
        for path in (ROOT / "suite").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in ("set_num_threads", "set_num_interop_threads"))
        or (isinstance(node, ast.Constant) and node.value in threads.THREAD_VARIABLES)
    }
    assert setters == {"hardware/threads.py", "external/settings.py", "numerics/subnormals.py"}
