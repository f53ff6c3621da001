"""Shared by the tests of tuning: an entry, and an autotuned module whose kernel computes sums on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from suite.frameworks.triton import tuned
from suite.hardware.device import Device
from triton_kernels._runtime import tuned as _tuned

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
    """A kernel for an Autotuner: `out = a + b`. `launched` has the parameters of each launch."""

    arg_names = ("a", "b", "out", "N", "MODE", "BLOCK")

    def __init__(self, faults: dict[int, str]) -> None:
        self.faults, self.launched = faults, list[dict[str, Any]]()

    cache_key = "digest of the source"

    @staticmethod
    def fn() -> None: ...

    fn.__func__.__module__, fn.__func__.__name__ = "triton_kernels.fake", "kernel"

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

    from triton_kernels._runtime.autotuner import autotune

    module = ModuleType("triton_kernels.fake")

    def config(BLOCK: int) -> triton.Config:
        return triton.Config({"BLOCK": BLOCK}, num_warps=4, num_stages=3, pre_hook=hook)

    tuner = autotune([config(16), config(64)], ["N", "MODE"])(Kernel(faults or {}))
    tuner.cache_results = True  # it is off where Triton interprets

    def bench(call: Callable[[], None], quantiles: object) -> list[float]:
        """Larger blocks are slower."""
        call()
        return [float(tuner.fn.launched[-1]["BLOCK"])] * 3

    tuner.do_bench = bench

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


def write_tuned(*entries: _tuned.Entry, version: str = "3.6.0") -> None:
    """A file of tuned configurations of an H200; what this process has read of others is forgotten."""
    tuned.write(_tuned.path_for(H200.name, version), entries, device=H200.name, version=version, driver="1")
    _tuned._entries.cache_clear()


THREE = ("torch.float32",) * 3


@pytest.fixture
def tuned_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An H200 with Triton 3.6.0, whose files of tuned configurations and kept choices are in a temporary folder."""
    monkeypatch.setattr(_tuned, "FOLDER", tmp_path)
    monkeypatch.setattr(_tuned, "version", lambda: "3.6.0")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: H200.name)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path
