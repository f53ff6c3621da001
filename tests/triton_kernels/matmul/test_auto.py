"""The Triton matmul that chooses: `config` names the kernels that it launches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from triton_kernels._common import padding
from triton_kernels._runtime import configs, interpreter
from triton_kernels._runtime.configs import Device
from triton_kernels.matmul import _add_parts, _few, auto, parts, pipelined

H200 = Device(132, 1980.0, 4.917e6)
SHAPES = ((1, 20, 300), (3, 20, 520), (20, 2, 90), (0, 5, 3), (33, 65, 700), (260, 300, 513), (300, 304, 1025))
LAYOUTS = ("nn", "tt")
pytestmark = pytest.mark.skipif(not interpreter.INTERPRET, reason="needs Triton's interpreter")


def matrices(shape: tuple[int, int, int], layout: str, dtype: torch.dtype) -> list[torch.Tensor]:
    M, N, K = shape
    return [
        torch.randn(size[::-1]).to(dtype).t() if letter == "t" else torch.randn(size).to(dtype)
        for letter, size in zip(layout, ((M, K), (K, N)), strict=True)
    ]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are launched, on what the models take for an H200."""
    from triton_kernels._runtime import launch as _launch

    names: list[str] = []
    launch = _launch.launch

    def recorded(kernel: Any, *args: Any, **options: Any) -> None:
        names.append(kernel.__name__)
        launch(kernel, *args, **options)

    for module in (pipelined, parts, padding, _few, _add_parts, _launch):
        monkeypatch.setattr(module, "launch", recorded)
    monkeypatch.setattr(configs, "INTERPRETED", H200)
    return names


def named(config: str, launched: list[str]) -> bool:
    """True if each step of `config` begins with a word of the name of the kernel that was launched in its place."""
    steps = [step.split()[0] for step in config.split("; ") if step]
    return len(steps) == len(launched) and all(word in name for word, name in zip(steps, launched, strict=True))


@pytest.mark.parametrize(
    ("function", "config", "precision"),
    [
        (auto.matmul, auto.config, "ieee"),
        pytest.param(auto.matmul, auto.config, "tf32", marks=pytest.mark.thorough),
        (parts.matmul, parts.config, "ieee"),
    ],
)
def test_config_names_the_kernels_that_run(
    function: Callable[..., torch.Tensor], config: Callable[..., str], precision: str, launched: list[str]
) -> None:
    dtype, found = torch.float32 if precision == "tf32" else torch.float16, set()
    for shape, layout in product(SHAPES, LAYOUTS):
        a, b = matrices(shape, layout, dtype)
        said = config(a, b, precision=precision)
        assert not launched, "config launches nothing"
        c = function(a, b, precision=precision)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-2, atol=3e-2)
        assert named(said, launched), (shape, layout, said, launched)
        found |= {step.partition(" ")[0] for step in said.split("; ")}
        launched.clear()
    if function is auto.matmul and precision == "ieee":
        assert found == {"", "few", "pad_both", "pad", "parts", "add_parts", "pipelined"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float8_is_not_divided(layout: str, launched: list[str]) -> None:
    a, b = matrices((33, 65, 2100), layout, torch.float8_e4m3fn)
    one = torch.ones(())
    assert auto.config(a, b, one, one, precision="promoted") == "pipelined"
    auto.matmul(a, b, one, one, precision="promoted")
    assert launched == ["pipelined_matmul_kernel"]


def test_configs_of_gluon_on_a_pretended_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a launch: the same choices as on an H200."""
    monkeypatch.setattr(auto, "device", lambda x: H200)
    monkeypatch.setattr("triton_kernels.matmul.gluon.device", lambda x: H200)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))

    class OnGpu(torch.Tensor):
        is_cuda = True

    def said(
        shape: tuple[int, int, int], layout: str = "nn", dtype: torch.dtype = torch.bfloat16, precision: str = "ieee"
    ) -> str:
        M, N, K = shape
        a, b = (
            (torch.empty(size[::-1], dtype=dtype).t() if letter == "t" else torch.empty(size, dtype=dtype))
            for letter, size in zip(layout, ((M, K), (K, N)), strict=True)
        )
        return auto.config(a.as_subclass(OnGpu), b.as_subclass(OnGpu), precision=precision)

    assert said((4096, 4096, 4096)) == "gluon"
    assert said((1, 4096, 4096)).startswith("gluon parts=")
    assert said((1, 4096, 4096)).endswith("; add_parts")
    assert said((128, 128, 32768)).startswith("parts count=")
    assert " transposed" in said((16, 6144, 4096))
    assert said((4095, 4097, 4099)) == "pad_both; gluon; pad"
    assert said((100000, 20, 72)) == "pipelined"
    assert said((4096, 4096, 4096), "tn", torch.float32, precision="tf32") == "pad; gluon"
    assert said((16, 4096, 4096), dtype=torch.float32, precision="tf32") == "pipelined"
    assert said((4096, 4096, 4096), dtype=torch.float32) == "pipelined"
    assert said((4096, 4096, 4096), "nt", torch.float8_e4m3fn, precision="fast") == "gluon"
    assert said((1, 6144, 4096), "nt", torch.float8_e4m3fn, precision="fast") == "pipelined"
