"""matmul_split: three bfloat16 numbers hold a float32, and six of their products are as accurate as float32."""

from __future__ import annotations

import pytest
import torch
from tensor_cores import tensor_core

from suite.ops.matmul import matmul_limit
from triton_kernels.matmul.split import split_rows


def planes(x: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The results of split_kernel for the rows of x: three parts, (3, R, K) in float64, and exponents, (R, 1)."""
    desc, exponents = split_rows(x.to(device))
    R, K = x.shape
    return desc.base[:, :K].cpu().double().view(3, R, K), exponents.cpu()[:, None]


@pytest.mark.parametrize("power", [0, -140, 126])
def test_three_parts_and_an_exponent_are_exact(power: int, device: str) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(50, 301, generator=source).clamp(-3.9, 3.9).double().ldexp(torch.tensor(power)).float()
    x[3] = 0.0
    x[4, :-1] = 0.0
    parts, exponents = planes(x, device)
    assert torch.equal(torch.ldexp(parts.sum(0), exponents), x.double())
    largest = parts.sum(0).abs().amax(1)
    assert ((largest >= 1) & (largest < 2) | (largest == 0)).all()

    x[5, 7], x[6, 8], x[7, 9] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    parts, exponents = planes(x, device)
    assert torch.equal(torch.ldexp(parts.sum(0), exponents).nan_to_num(nan=7.0), x.double().nan_to_num(nan=7.0))
    assert parts[1:].isfinite().all()


def operands(kind: str, size: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(K)
    a, b = (torch.randn(size, K, generator=source) for _ in range(2))
    if kind == "positive":
        return a.abs(), b.abs()
    if kind == "magnitudes":
        a, b = (x * 10.0 ** (4 * torch.randn(size, K, generator=source)).clamp(-12, 12) for x in (a, b))
    return a, b


def six_products(parts_a: torch.Tensor, parts_b: torch.Tensor, BLOCK_K: int) -> torch.Tensor:
    """The sums of (3, ..., M, K) and (3, ..., N, K), in the kernel's order of additions, by truncating tensor cores."""
    K = parts_a.shape[-1]
    acc = torch.zeros(*parts_a.shape[1:-1], parts_b.shape[-2])
    lower = acc.double()
    for k in range(0, K, BLOCK_K):
        (a1, a2, a3), (b1, b2, b3) = parts_a[..., k : k + BLOCK_K], parts_b[..., k : k + BLOCK_K]
        for x, y in [(a3, b2), (a2, b3)] if K <= 16 else []:
            lower = tensor_core(x, y, lower)
        for x, y in [(a1, b3), (a3, b1), (a2, b2), (a1, b2), (a2, b1)]:
            lower = tensor_core(x, y, lower)
        acc += tensor_core(a1, b1, torch.zeros_like(lower)).float()
    return (acc + lower.float()).double()


@pytest.mark.parametrize("K", [1, 2, 3, 16, 17, 100, 1024, pytest.param(16384, marks=pytest.mark.thorough)])
def test_six_products_meet_the_float32_bound(K: int, device: str) -> None:
    """Normal and positive numbers and such of many magnitudes, side by side, in blocks of both sizes."""
    size = 24 if K > 1000 else 64
    drawn = [operands(kind, size, K) for kind in ("normal", "positive", "magnitudes")]
    split_a, split_b = ([planes(x, device) for x in each] for each in zip(*drawn, strict=True))
    parts_a, parts_b = (torch.stack([parts for parts, _ in each], dim=1) for each in (split_a, split_b))
    sums = torch.stack([six_products(parts_a, parts_b, BLOCK_K) for BLOCK_K in (32, 64)], dim=1)
    for (a, b), (_, exponents_a), (_, exponents_b), totals in zip(drawn, split_a, split_b, sums, strict=True):
        c = torch.ldexp(totals, exponents_a + exponents_b.T)
        value, spread_squared = a.double() @ b.double().T, a.double().square() @ b.double().square().T
        limit = matmul_limit(value, spread_squared, K, size * size, "float32", "ieee")
        assert ((c.float().double() - value).abs() / limit).max() <= 1
