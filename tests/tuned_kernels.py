"""Shared by the tests of tuning: an entry, and an autotuned module whose kernel computes sums on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from suite.frameworks.triton import Triton, tuned
from suite.hardware.device import Device

H200 = Device("cuda", 0, "NVIDIA H200", (9, 0))
ENTRY = tuned.Entry(
    kernel="fake.kernel",
    key={"N": 64, "MODE": "up"},
    dtypes=("torch.float32",),
    config={"BLOCK": 32, "num_warps": 8, "num_stages": 3},
    us=2.0,
    short_list_us=3.0,
    candidates=9,
)


class Kernel:
    """What an Autotuner needs of a kernel: `out = a + b`. `launched` has the parameters of each launch."""

    arg_names = ("a", "b", "out", "N", "MODE", "BLOCK")

    def __init__(self, faults: dict[int, str]) -> None:
        self.faults, self.launched = faults, list[dict[str, Any]]()

    fn = staticmethod(lambda: None)

    def run(self, a: Any, b: Any, out: Any, N: int, *, grid: Any, warmup: bool, **parameters: Any) -> None:
        fault = self.faults.get(parameters["BLOCK"])
        if fault == "does not compile":
            raise RuntimeError(fault)
        if warmup:
            return
        if fault == "does not launch":
            raise RuntimeError(fault)
        self.launched.append(parameters)
        out.copy_(a - b if fault == "wrong" else a + b)


def fake_module(faults: dict[int, str] | None = None, hook: Callable[[Any], None] | None = None) -> ModuleType:
    """A module like those of triton_kernels: `vector_add`, an autotuned `kernel`, a `tuning_space`."""
    import triton

    module = ModuleType("triton_kernels.fake")

    def config(BLOCK: int) -> triton.Config:
        return triton.Config({"BLOCK": BLOCK}, num_warps=4, num_stages=3, pre_hook=hook)

    tuner = triton.autotune(
        [config(16), config(64)], key=["N", "MODE"], do_bench=lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]
    )(Kernel(faults or {}))

    def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        if a.numel():
            tuner[(1,)](a, b, out, a.numel(), MODE="up")
        return out

    def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
        assert (args["N"], constants) == (args["a"].numel(), {"MODE": "up"})
        return [config(block) for block in (16, 32, 128, 256, 512)]

    vars(module).update(kernel=tuner, vector_add=vector_add, tuning_space=tuning_space)
    return module


def call(module: ModuleType, N: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The parameters of the last launch of one call."""
    a = torch.ones(N, dtype=dtype)
    assert torch.equal(module.vector_add(a, a), a + a)
    return module.kernel.fn.launched[-1]


def equipped(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *entries: tuned.Entry) -> Triton:
    """An adapter on an H200 whose file has these entries, after it has equipped the module."""
    monkeypatch.setattr(tuned, "version", lambda: "3.6.0")
    monkeypatch.setattr("suite.frameworks._caches.use", lambda caches: None)
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.setenv(name, "0")  # which restores what prepare() changes
    if entries:
        tuned.add(entries, H200.name, "1")
    adapter = Triton()
    adapter.prepare(H200)
    adapter.equip(module)
    return adapter


THREE = ("torch.float32",) * 3


@pytest.fixture
def tuned_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The files of tuned configurations are in a temporary folder; Triton's cache, which needs source code, is off."""
    monkeypatch.setattr(tuned, "FOLDER", tmp_path)
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "0")
    return tmp_path
