"""torch_impls: settings of the process are restored, and a kernel requested by name says why it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from torch_impls._runtime.precision import with_precision
from torch_impls.attention import cudnn as attention_cudnn
from torch_impls.attention import flash as attention_flash
from torch_impls.matmul import matmul


def test_matmul_restores_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.randn(8, 8)
    flags = torch.backends.mkldnn.matmul
    before = flags.fp32_precision
    seen: list[str] = []

    def failing(*_: torch.Tensor) -> None:
        seen.append(flags.fp32_precision)
        raise RuntimeError("out of memory")

    try:
        flags.fp32_precision = "bf16"
        matmul(a, a)
        assert flags.fp32_precision == "bf16"
        monkeypatch.setattr(torch, "matmul", failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            matmul(a, a)
        assert (seen, flags.fp32_precision) == (["ieee"], "bf16")
    finally:
        flags.fp32_precision = before


def test_a_requested_kernel_says_why_it_refuses(device: str) -> None:
    x = torch.randn(1, 1, 8, 64, device=device)  # float32
    with pytest.raises(NotImplementedError, match=r"float|Half|dtype|GPU"):
        attention_cudnn.attention(x, x, x)
    if device == "cuda":
        with pytest.raises(NotImplementedError, match=r"float|Half|dtype"):
            attention_flash.attention(x, x, x)
    transposed = torch.randn(1, 1, 64, 64, dtype=torch.float16).mT
    with pytest.raises(NotImplementedError, match="FlashAttention-2 refuses: "):
        attention_flash.attention(transposed, transposed, transposed)


def test_float64_on_a_gpu_changes_no_setting() -> None:
    operand = SimpleNamespace(dtype=torch.float64, is_cuda=True)
    assert with_precision("ieee", lambda x: x, operand) is operand
