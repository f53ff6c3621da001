"""Fixtures of the kernel tests: inputs surrounded by NaN, outputs filled with NaN, and the check against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated_kernels import KERNELS, emulated_files
from kept_sources import kept_folder
from torch import Tensor

from cuda_ref import build
from suite import ops
from suite.checking.judge import judge


@cache
def emulated_source(kernel: str) -> Path:
    """The path of a kernel for Hopper that a CPU runs. Its library takes 10 s to build, and is kept."""
    return kept_folder(emulated_files(kernel)) / kernel


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of these kernels for Hopper run on the CPU, with TMA, mbarriers and wgmma emulated."""
    launch = build.launch

    def launch_emulated(name: str, *args: Any) -> None:
        source = f"{name}.cu"
        launch(emulated_source(source) if source in KERNELS else name, *args)

    monkeypatch.setattr(build, "launch", launch_emulated)


@pytest.fixture
def nan_outputs() -> Iterator[None]:
    """torch.empty gives NaN, so that an element that a kernel does not write is visible."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def random(device: str) -> Callable[..., Tensor]:
    """Draws normal numbers within an array of NaN, so that reads beyond an edge are visible.

    `shift` and `pad` are the numbers of NaN before and after each row.
    """
    source = torch.Generator(device).manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = torch.float32, shift: int = 8, pad: int = 8) -> Tensor:
        around = torch.full((*shape[:-1], shift + shape[-1] + pad), math.nan, dtype=dtype, device=device)
        inner = around[..., shift : shift + shape[-1]]
        return inner.copy_(torch.randn(shape, generator=source, device=device))

    return draw


@pytest.fixture
def agrees(nan_outputs: None) -> Callable[..., Tensor]:
    """Calls a kernel, checks its output against float64 with the bound of its operation, and returns the output."""
    return _agrees


def _agrees(function: Callable[..., Tensor], *inputs: Tensor, precision: str = "ieee", **arguments: Any) -> Tensor:
    op = ops.get(function.__name__)
    if op.name == "matmul":
        shape: tuple[int, ...] = (inputs[0].shape[0], inputs[1].shape[1], inputs[0].shape[1])
        arguments["precision"] = precision
    elif op.name == "attention":
        (B, H, S_q, D), (_, H_kv, S_k, _) = inputs[0].shape, inputs[1].shape
        shape = (B, H, H_kv, S_q, S_k, D)
    elif op.name == "sigmoid":
        shape = (inputs[0].numel(),)
    else:
        shape = tuple(inputs[0].shape)
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    case = op.case(shape, dtype, precision, causal=arguments.get("causal"))
    before = [x.clone() for x in inputs]
    out = function(*inputs, **arguments)
    assert out.is_contiguous()
    judged, given = (out.flatten(), (inputs[0].flatten(),)) if op.name == "sigmoid" else (out, inputs)
    verdict = judge(judged, op.truth(given, case), shape=op.output_shape(case), dtype=dtype)
    layouts = ", ".join(f"{tuple(x.shape)} with strides {x.stride()}" for x in inputs)
    assert verdict.agrees, f"{op.name} {dtype} of {layouts}: {verdict.reason}"
    assert all(torch.equal(x, y) for x, y in zip(before, inputs, strict=True)), "an input was changed"
    return out


@pytest.fixture
def needs_memory(device: str) -> Callable[[int], None]:
    """Skips the test unless the device has that many GiB of free memory."""

    def check_memory(gib: int) -> None:
        free = torch.cuda.mem_get_info(device)[0] / 2**30
        if free < gib:
            pytest.skip(f"needs {gib} GiB of free device memory; there are {free:.0f}")

    return check_memory


@pytest.fixture
def hopper(device: str) -> torch.device:
    """The GPU; skips the test unless it has compute capability 9.0."""
    if device != "cuda" or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs compute capability 9.0")
    return torch.device("cuda")


@pytest.fixture
def draw(hopper: torch.device) -> Callable[..., Tensor]:
    """Draws normal numbers on the GPU, in rows (or columns, if `transposed`) that are `pad` elements of NaN apart."""

    def matrix(rows: int, columns: int, dtype: torch.dtype, transposed: bool = False, pad: int = 0) -> Tensor:
        shape = (columns, rows) if transposed else (rows, columns)
        around = torch.full((shape[0], shape[1] + pad), math.nan, dtype=dtype, device=hopper)
        inner = around[:, : shape[1]].copy_(torch.randn(shape, device=hopper))
        return inner.t() if transposed else inner

    return matrix


@pytest.fixture
def agrees_twice(agrees: Callable[..., Tensor]) -> Callable[..., None]:
    """Checks a matmul as `agrees` does, and that a second call gives the same bits."""

    def check_twice(matmul: Callable[..., Tensor], a: Tensor, b: Tensor, precision: str = "ieee") -> None:
        out = agrees(matmul, a, b, precision=precision)
        assert torch.equal(out, matmul(a, b, precision=precision)), "the second call gives another result"

    return check_twice
