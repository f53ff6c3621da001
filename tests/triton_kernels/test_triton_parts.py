"""Sums of matmul in parts, and its operands in padded copies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import triton_kernels.matmul as module
from suite import ops
from suite.checking.checked_call import check
from suite.checking.problem import Problem
from suite.implementations import builtin
from triton_kernels import _parts

OP = ops.get("matmul")
TRITON = next(each for each in builtin.implementations("matmul") if each.name == "triton")


@pytest.mark.parametrize("layout", ["nn", "tn", "nt", "tt"])
@pytest.mark.parametrize("shape", [(33, 65, 600), (256, 256, 1024)], ids=str)
def test_parts_add_up(monkeypatch: pytest.MonkeyPatch, layout: str, shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    monkeypatch.setattr(module, "parts_of", lambda *_: (-(-K // 256), 256))
    a, b = (
        torch.randn(size[::-1]).half().t() if letter == "t" else torch.randn(size).half()
        for letter, size in zip(layout, ((M, K), (K, N)), strict=True)
    )
    expected = a.double() @ b.double()
    torch.testing.assert_close(module.matmul(a, b).double(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("layout", ["nn", "tn", "nt", "tt"])
@pytest.mark.parametrize("parts", [1, 2])
def test_padded_copies_of_rows_at_any_address(monkeypatch: pytest.MonkeyPatch, layout: str, parts: int) -> None:
    M, N, K = 37, 263, 301
    monkeypatch.setattr(module, "worth_padding", lambda *_: True)
    monkeypatch.setattr(module, "parts_of", lambda *_: (parts, 256 if parts > 1 else K))
    a, b = (
        torch.randn(size[::-1]).half().t() if letter == "t" else torch.randn(size).half()
        for letter, size in zip(layout, ((M, K), (K, N)), strict=True)
    )
    torch.testing.assert_close(module.matmul(a, b).double(), a.double() @ b.double(), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("shape", "divided"),
    [((4096, 4096, 4096), False), ((128, 128, 32768), True), ((16, 16, 256), False), ((1, 64, 100_000), True)],
    ids=str,
)
def test_long_sums_of_few_tiles_are_divided(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], divided: bool
) -> None:
    monkeypatch.setattr(_parts, "multiprocessors", lambda _: 132)
    a = SimpleNamespace(is_cuda=True, element_size=lambda: 2)
    parts, K_part = _parts.parts_of(*shape, a)  # type: ignore[arg-type]
    assert (parts > 1) == divided
    assert (parts - 1) * K_part < shape[2] <= parts * K_part
    assert parts == 1 or K_part % _parts.STEP == 0


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(128, 128, 32768), (17, 250, 5001), (1001, 1003, 1005)], ids=str)
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_long_sums_and_odd_rows_on_a_gpu(layout: str, shape: tuple[int, int, int]) -> None:
    case = OP.case(shape, "bfloat16", layout=layout)
    problem = Problem(case, 1, torch.device("cuda"))
    found = check(lambda: module.matmul, TRITON.adapter, problem)
    assert found.agrees, f"{found.reason} (error / bound {found.error_ratio:.3g})"
