"""Folders of compiled kernels must be private to the user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite.frameworks import _caches
from suite.frameworks import get as adapter
from suite.hardware.device import Device


def test_a_framework_whose_cache_others_can_write_to_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    gpu = Device("cuda", 0, "NVIDIA H200", (9, 0))
    for name, variable in (
        ("triton", "TRITON_CACHE_DIR"),
        ("jax", "JAX_COMPILATION_CACHE_DIR"),
        ("torch", "TORCHINDUCTOR_CACHE_DIR"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            patch.delenv(variable, raising=False)
            assert adapter(name).missing(gpu) is None
            patch.setenv(variable, str(open_to_all))
            reason = adapter(name).missing(gpu) or ""
            assert f"build cache {open_to_all} can be written by other users (mode 0777)" in reason
            assert f"chmod 700 {open_to_all}" in reason
            assert variable in reason
            _caches.use({variable: "x"})
            assert os.environ[variable] != str(open_to_all)
            Path(os.environ[variable]).rmdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    _caches.use({"TRITON_CACHE_DIR": "triton"})
    assert Path(os.environ["TRITON_CACHE_DIR"]) == tmp_path / "cache" / "kernel-suite" / "triton"
    assert Path(os.environ["TRITON_CACHE_DIR"]).stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("TRITON_CACHE_DIR")
    assert _caches.fault({"TRITON_CACHE_DIR": "triton"}) is None
    (tmp_path / "cache" / "kernel-suite").chmod(0o770)
    assert "can be written by other users (mode 0770)" in (_caches.fault({"TRITON_CACHE_DIR": "triton"}) or "")


def test_every_framework_names_the_same_remedy_for_an_unusable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for variable in ("TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("cuda_ref.build.compiler.missing", lambda device_type: None)
    gpu = Device("cuda", 0, "NVIDIA H200", (9, 0))
    reasons = {adapter(name).missing(gpu) for name in ("triton", "jax", "torch", "cuda")}
    remedy = "set XDG_CACHE_HOME to a folder of your own"
    assert reasons == {f"build cache {tmp_path / 'file' / 'kernel-suite'}: Not a directory; {remedy}"}
