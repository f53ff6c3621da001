"""The choosers of attention: `config` names the kernels that they launch, and each case has its kernel."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from triton_kernels import attention, attention_grad, matmul, multi_head_attention
from triton_kernels._runtime import interpreter
from triton_kernels.attention import auto, float8, gluon, packed, parts, specialized, split, two_passes
from triton_kernels.attention_grad import auto as grad_auto
from triton_kernels.attention_grad import gluon as grad_gluon
from triton_kernels.attention_grad import peeled
from triton_kernels.multi_head_attention import auto as layer_auto

pytestmark = pytest.mark.skipif(not interpreter.INTERPRET, reason="needs Triton's interpreter")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are launched."""
    from triton_kernels._common import padding
    from triton_kernels._runtime import launch as _launch
    from triton_kernels.matmul import _add_parts, _few, pipelined
    from triton_kernels.matmul import parts as matmul_parts

    names: list[str] = []
    launch = _launch.launch

    def recorded(kernel: Any, *args: Any, **options: Any) -> None:
        names.append(kernel.__name__)
        launch(kernel, *args, **options)

    of_attention = (attention, two_passes, packed, parts, float8, split, attention_grad, peeled)
    for module in (*of_attention, matmul, pipelined, matmul_parts, padding, _few, _add_parts, _launch):
        monkeypatch.setattr(module, "launch", recorded)
    return names


def heads(S_q: int, S_k: int, dtype: torch.dtype = torch.float32, D: int = 16) -> tuple[torch.Tensor, ...]:
    return torch.randn(1, 4, S_q, D).to(dtype), *(torch.randn(1, 2, S_k, D).to(dtype) for _ in range(2))


def named(config: str, launched: list[str]) -> bool:
    """True if each step of `config` begins with a word of the name of the kernel that was launched in its place."""
    steps = [step.split()[0] for step in config.split("; ") if step]
    return len(steps) == len(launched) and all(word in name for word, name in zip(steps, launched, strict=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("S_q", "S_k", "words"),
    [(1, 100, ["parts", "add_parts"]), (16, 20, ["parts"]), (17, 20, ["packed"]), (0, 5, []), (5, 0, [])],
)
def test_config_names_what_attention_launches(
    launched: list[str], S_q: int, S_k: int, words: list[str], causal: bool
) -> None:
    operands = heads(S_q, S_k)
    config = auto.config(*operands, causal=causal)
    assert [step.split()[0] for step in config.split("; ") if step] == words
    auto.attention(*operands, causal=causal)
    assert named(config, launched), launched


@pytest.mark.parametrize("module", [packed, parts, split, float8], ids=lambda each: each.__name__.rpartition(".")[2])
def test_config_names_what_a_variant_launches(launched: list[str], module: ModuleType) -> None:
    dtype = torch.float8_e4m3fn if module is float8 else torch.float32
    operands = (*heads(16, 40, dtype), *(3 * [torch.tensor(0.5)] if module is float8 else []))
    config = module.config(*operands)
    module.attention(*operands)
    assert named(config, launched), launched


def test_config_names_what_the_gradients_launch(launched: list[str]) -> None:
    q, k, v = heads(17, 20)
    config = grad_auto.config(q, k, v, q)
    grad_auto.attention_grad(q, k, v, q)
    assert named(config, launched), launched


@pytest.mark.parametrize(("S", "attended"), [(1, "parts"), (5, "packed"), (40, "packed")])
def test_config_names_what_a_layer_launches(launched: list[str], S: int, attended: str) -> None:
    x, w_qkv, w_out = torch.randn(1, S, 32), torch.randn(96, 32), torch.randn(32, 32)
    config = layer_auto.config(x, w_qkv, w_out, heads=2)
    assert attended in [step.split()[0] for step in config.split("; ")]
    found = layer_auto.multi_head_attention(x, w_qkv, w_out, heads=2)
    assert named(config, launched), (config, launched)
    torch.testing.assert_close(found, multi_head_attention.multi_head_attention(x, w_qkv, w_out, heads=2))


CHOICES = [  # B, H, H_kv, S_q, S_k, D, dtype, causal, the kernel on Hopper
    ((4, 16, 16, 4096, 4096, 128), torch.bfloat16, False, gluon),
    ((4, 16, 16, 4096, 4096, 128), torch.bfloat16, True, gluon),
    ((4, 32, 32, 4096, 4096, 64), torch.bfloat16, False, gluon),
    ((4, 32, 32, 4096, 4096, 64), torch.bfloat16, True, packed),
    ((4, 16, 16, 500, 4096, 128), torch.bfloat16, False, specialized),
    ((4, 32, 32, 500, 4096, 256), torch.bfloat16, False, specialized),
    ((4, 16, 16, 500, 4096, 128), torch.bfloat16, True, packed),
    ((4, 16, 16, 4096, 4096, 128), torch.float32, False, packed),
    ((1, 16, 16, 256, 4096, 128), torch.bfloat16, False, packed),  # fewer tiles than multiprocessors
    ((64, 16, 16, 150, 4096, 128), torch.bfloat16, False, packed),  # tiles mostly empty
    ((64, 32, 8, 16, 8192, 128), torch.bfloat16, False, parts),
]


@pytest.mark.parametrize(("sizes", "dtype", "causal", "expected"), CHOICES, ids=lambda each: str(each))
def test_choice_on_hopper(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], dtype: torch.dtype, causal: bool, expected: ModuleType
) -> None:
    monkeypatch.setattr(auto, "INTERPRET", False)
    monkeypatch.setattr(auto, "multiprocessors", lambda x: 132)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    B, H, H_kv, S_q, S_k, D = sizes
    q, k = torch.empty(B, H, S_q, D, dtype=dtype), torch.empty(B, H_kv, S_k, D, dtype=dtype)
    assert auto.choose(q, k, k, causal=causal) is expected


def test_choice_of_the_gradients_on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_auto, "INTERPRET", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    for dtype, D, expected in (
        (torch.bfloat16, 64, grad_gluon),
        (torch.bfloat16, 32, peeled),
        (torch.float32, 64, peeled),
    ):
        assert grad_auto.choose(torch.empty(1, 1, 8, D, dtype=dtype)) is expected
