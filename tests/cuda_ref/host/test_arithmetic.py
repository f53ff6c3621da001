"""The emulation of CUDA on the CPU: 16-bit floats, mathematical functions, bits, atomics and cache hints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cuda_ref import build

pytestmark = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
SOURCES = Path(__file__).parent
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
each_narrow_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def run(source: str, function: str, device: str, *arguments: Any) -> None:
    build.launch(SOURCES / f"{source}.cu", function, torch.device(device), *arguments)


def all_patterns(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def same_values(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True if x and y are equal, including signs of zeros and positions of NaN."""
    return bool(((x.isnan() & y.isnan()) | ((x == y) & (x.signbit() == y.signbit()))).all())


@on_both
@each_narrow_dtype
def test_every_16_bit_pattern_widens(device: str, dtype: torch.dtype) -> None:
    x = all_patterns(dtype)
    out = torch.empty(65536, device=device)
    run("narrow", "widen", device, x.to(device), out, build.dtype_code(dtype))
    assert same_values(out.cpu(), x.float())


@on_both
@each_narrow_dtype
def test_floats_narrow_to_nearest_even(device: str, dtype: torch.dtype) -> None:
    """All values, the ties between neighbours, the floats next to both, and random bits: subnormal, infinite, NaN."""
    values = all_patterns(dtype).float()
    values = values[values.isfinite()].sort().values
    ties = ((values[1:].double() + values[:-1].double()) / 2).float()
    exact = torch.cat([values, ties, torch.tensor([65519.99, 65520.0, 65536.0, torch.inf, -torch.inf, torch.nan])])
    beside = [torch.nextafter(exact, torch.full_like(exact, to)) for to in (torch.inf, -torch.inf)]
    generator = torch.Generator().manual_seed(0)
    any_bits = torch.randint(-(2**31), 2**31, (1 << 18,), generator=generator).to(torch.int32).view(torch.float32)
    x = torch.cat([exact, *beside, any_bits])
    out = torch.empty(len(x), dtype=dtype, device=device)
    run("narrow", "narrow", device, x.to(device), out, len(x), build.dtype_code(dtype))
    assert same_values(out.cpu(), x.to(dtype))
    assert (out.cpu()[x.isnan()].view(torch.int16) == 0x7FFF).all()  # the canonical one


@on_both
@each_narrow_dtype
def test_16_bit_arithmetic_is_correctly_rounded(device: str, dtype: torch.dtype) -> None:
    x = torch.randn(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = torch.empty(1000, 24, dtype=dtype, device=device)
    run("narrow", "operate", device, x.to(device), out, 1000, build.dtype_code(dtype))
    a, b, c = x.double().unbind(1)
    larger, smaller, total = torch.maximum(a, b), torch.minimum(a, b), (a + b).to(dtype).double()
    expected = [a + b, a - b, a * b, a / b, -a, a + b, a - b, a * b, a * b + c, larger, smaller, a.abs(), -a]
    expected += [a + b, b + c, a * b, b * c, a * b + a, b * c + b, smaller, larger, a, total, b * total]
    for column, truth in enumerate(expected):
        assert same_values(out[:, column].cpu(), truth.to(dtype)), column


INT = torch.iinfo(torch.int32)
FUNCTIONS: list[tuple[str, Any, float]] = [  # name, truth in float64, largest error on a GPU in ulps of float32
    ("expf", torch.exp, 2),
    ("exp2f", torch.exp2, 2),
    ("logf", torch.log, 1),
    ("log2f", torch.log2, 1),
    ("tanhf", torch.tanh, 2),
    ("sqrtf", torch.sqrt, 0.5),
    ("rsqrtf", torch.rsqrt, 2),
    ("fabsf", torch.abs, 0),
    ("floorf", torch.floor, 0),
    ("erff", torch.erf, 2),
    ("__expf", torch.exp, 128),
    ("__logf", torch.log, 1e6),
    ("__frcp_rn", torch.reciprocal, 0.5),
    ("__fdividef", torch.reciprocal, 2),
    ("__fsqrt_rn", torch.sqrt, 0.5),
    ("fmaxf(x, NAN)", lambda a: a, 0),
    ("fminf(x, INFINITY)", lambda a: a.nan_to_num(torch.inf, torch.inf, -torch.inf), 0),
    ("max(x, 0.5f)", lambda a: a.nan_to_num(0.5, torch.inf, -torch.inf).clamp(min=0.5), 0),
    ("min(x, 0.5f)", lambda a: a.nan_to_num(0.5, torch.inf, -torch.inf).clamp(max=0.5), 0),
    ("__saturatef", lambda a: a.nan_to_num(0).clamp(0, 1), 0),
    ("__float2int_rn", lambda a: a.nan_to_num(0).round().clamp(INT.min, INT.max), 0.5),
    ("__float2int_rz", lambda a: a.nan_to_num(0).trunc().clamp(INT.min, INT.max), 0.5),
    ("__float2uint_rz", lambda a: a.nan_to_num(0).trunc().clamp(0, 2**32 - 1), 0.5),
    ("__int_as_float", torch.neg, 0),
    ("isnan", torch.isnan, 0),
    ("isinf", torch.isinf, 0),
    ("fmaf", lambda a: a * a - 1, 0.5),
    ("__fmaf_rn", lambda a: a * a - 1, 0.5),
    ("__fmul_rn", lambda a: a * a, 0.5),
    ("powf", lambda a: a.abs() ** 1.5, 4),
]


@on_both
def test_mathematics(device: str) -> None:
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        torch.inf,
        -torch.inf,
        torch.nan,
        1e-40,
        3e9,
        -3e9,
        88.0,
        89.0,
    ]
    x = torch.cat([torch.tensor(special), 4 * torch.randn(1000, generator=torch.Generator().manual_seed(2))])
    out = torch.full((len(x), len(FUNCTIONS)), torch.nan, device=device)
    run("arithmetic", "mathematics", device, x.to(device), out, len(x))
    for column, (name, truth_of, ulps) in enumerate(FUNCTIONS):
        got, truth = out[:, column].cpu().double(), truth_of(x.double()).double()
        ulp = 2.0 ** (truth.abs().clamp(min=2.0**-126, max=2.0**127).log2().floor() - 23)
        good = (got - truth).abs() <= ulps * ulp
        good |= (got == truth) | (got.isnan() & truth.isnan())
        good |= (truth.abs() >= torch.finfo(torch.float32).max) & (got == truth.sign() * torch.inf)
        assert good.all(), (name, x[~good], got[~good], truth[~good])


def test_fdividef_is_zero_for_a_huge_denominator() -> None:
    x = torch.tensor([2.0**126, 2.0**127, -(2.0**127)])
    out = torch.empty(3, len(FUNCTIONS))
    run("arithmetic", "mathematics", "cpu", x, out, 3)
    assert out[:, 13].tolist() == [2.0**-126, 0.0, 0.0]


@on_both
def test_bits(device: str) -> None:
    out = torch.zeros(14, dtype=torch.int32, device=device)
    run("arithmetic", "bit", device, out)
    assert out.tolist() == [8, 31, 32, 4, 1, 64, 63, 3, -1, 0x77553311, 3, 1, 7, 1]


@on_both
def test_atomics(device: str) -> None:
    x = torch.randint(-50, 50, (512,)).float()
    f, d = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.float64, device=device)
    i = torch.tensor([0, -1, 5000, -1, 0, 17], dtype=torch.int32, device=device)
    u = torch.zeros(3, dtype=torch.int32, device=device)
    run("arithmetic", "atomic", device, x.to(device), f, d, i, u)
    scrambled = [(t * 7919) % 1000 for t in range(512)]
    assert (f.item(), d.item()) == (x.sum().item(), x.sum().item())
    assert i.tolist() == [sum(range(512)), max(scrambled), min(scrambled), 511, 17, 42]
    assert u.tolist() == [(1 << 20) - 1, 0, 512 % 100]


@on_both
@pytest.mark.parametrize("size", [4, 8, 16])
def test_loads_and_stores_with_a_cache_hint(device: str, size: int) -> None:
    x = torch.randn(16, size // 4, device=device)
    out = torch.empty(16, 4, size // 4, device=device)
    run("arithmetic", "hint", device, x, out, size)
    assert torch.equal(out, x[:, None].expand_as(out))
