"""The persistent Triton matmul: how it lays out its operands."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import torch


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("K", [1, 4, 64])
def test_tf32_operands_have_k_contiguous(layout: str, K: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher makes A row-major and B column-major; a vector is both."""
    module = import_module("triton_kernels.matmul.persistent")
    a, b = torch.randn(64, K, device=device), torch.randn(K, 64, device=device)
    if layout[0] == "t":
        a = a.t().contiguous().t()
    if layout[1] == "t":
        b = b.t().contiguous().t()
    orders = []

    class Launch:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda a_desc, b_desc, *_, A_ROWS, B_ROWS, **__: orders.append(
                (A_ROWS, B_ROWS, torch.equal(a_desc.base, a), torch.equal(b_desc.base.t(), b))
            )

    monkeypatch.setattr(module, "persistent_matmul_kernel", Launch())
    module.matmul(a, b, precision="tf32")
    assert orders == [(True, False, True, True)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((8, 8), (8, 12)),
        ((9, 7), (7, 16)),
        ((33, 70), (70, 31)),
        ((1, 5), (5, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["rows", "columns", "neither", "expanded"])
def test_operands_that_tma_cannot_read_are_copied(
    layout: str, a: tuple[int, int], b: tuple[int, int], device: str
) -> None:
    module = import_module("triton_kernels.matmul.persistent")

    def matrix(rows: int, columns: int) -> torch.Tensor:
        if layout == "columns":
            return torch.randn(columns, rows + 1, device=device)[:, 1:].t().half()
        if layout == "neither":
            return torch.randn(2 * rows, 3 * columns, device=device).half()[::2, ::3]
        if layout == "expanded":
            return torch.randn(1, columns, device=device).half().expand(rows, columns)
        return torch.randn(rows, columns + 1, device=device).half()[:, 1:]

    left, right = matrix(*a), matrix(*b)
    out = module.matmul(left, right)
    assert out.is_contiguous()
    torch.testing.assert_close(out, (left.double() @ right.double()).half(), rtol=2e-3, atol=2e-3)
