"""matmul_split: its arithmetic, simulated in float64; what it refuses; and, on a Hopper GPU, its results."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from thinning import crossed, named
from torch import Tensor

from cuda_ref.matmul.split import matmul as matmul_split
from suite import ops
from suite.checking.judge import judge

F32 = torch.float32
LAYOUTS = ("nn", "nt", "tn", "tt")


def test_split_covers_float32_only() -> None:
    x = torch.zeros(8, 8)
    for arguments, precision, message in (
        ((x.bfloat16(),) * 2, "ieee", 'splits float32 with precision="ieee" only; got torch.bfloat16, "ieee"'),
        ((x, x), "tf32", 'splits float32 with precision="ieee" only; got torch.float32, "tf32"'),
        ((x[:, :0].expand(8, 0), x[:1, :1].expand(0, 2**29 + 1)), "ieee", "must be at most 2^29"),
        ((x, x), "ieee", "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=re.escape(message)):
            matmul_split(*arguments, precision=precision)
    assert matmul_split(x[:0], x).shape == (0, 8)
    assert matmul_split(x, x[:, :0]).shape == (8, 0)
    assert torch.equal(matmul_split(x[:, :0], x[:0, :3]), torch.zeros(8, 3))


def three_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The result of split_rows: parts (3, R, K) in float64, K padded to whole steps, and exponents (R, 1)."""
    exponents = torch.frexp(x.abs().amax(1, keepdim=True)).exponent - 1
    rest, parts = torch.ldexp(x.double(), -exponents), []
    for _ in range(3):
        parts.append(rest.bfloat16().double())
        rest = rest - parts[-1]
    assert not rest.any()
    return torch.nn.functional.pad(torch.stack(parts), (0, -x.shape[1] % 64)), exponents


def tensor_core(acc: Tensor, a: Tensor, b: Tensor, depth: int) -> Tensor:
    """acc + a b^T; adds `depth` exact products at a time and truncates to 24 significant bits."""
    for k in range(0, a.shape[1], depth):
        fraction, exponent = torch.frexp(acc + a[:, k : k + depth] @ b[:, k : k + depth].T)
        acc = torch.ldexp(torch.trunc(fraction * 2.0**24), exponent - 24)
    return acc


@pytest.mark.parametrize(
    ("depth", "kind", "K"),
    crossed(
        named([8, 16]), named(["normal", "positive", "magnitudes"]), named([1, 2, 3, 16, 17, 64, 100, 1024, 16384])
    ),
)
def test_split_products_with_truncated_sums_meet_the_bound(K: int, kind: str, depth: int) -> None:
    size = 24 if K > 1000 else 64
    source = torch.Generator().manual_seed(K)
    a, b = (torch.randn(size, K, generator=source) for _ in range(2))
    if kind == "positive":
        a, b = a.abs(), b.abs()
    elif kind == "magnitudes":
        a, b = (x * 10.0 ** (2 * torch.randn(size, K, generator=source)).clamp(-4, 4) for x in (a, b))
    (parts_a, exponents_a), (parts_b, exponents_b) = three_parts(a), three_parts(b)
    products = [(2, 1), (1, 2)] * (K <= 16) + [(0, 2), (2, 0), (1, 1), (0, 1), (1, 0)]
    acc, lower = torch.zeros(size, size), torch.zeros(size, size, dtype=torch.float64)
    for step in range(0, parts_a.shape[2], 64):
        leading = torch.zeros_like(lower)
        for k in range(step, step + 64, 16):
            x, y = parts_a[:, :, k : k + 16], parts_b[:, :, k : k + 16]
            leading = tensor_core(leading, x[0], y[0], depth)
            for i, j in products:
                lower = tensor_core(lower, x[i], y[j], depth)
        acc += leading.float()
    out = torch.ldexp((acc + lower.float()).double(), exponents_a + exponents_b.T).float()

    op = ops.get("matmul")
    case = op.case((size, size, K), "float32", "ieee")
    verdict = judge(out, op.truth((a, b.T), case), shape=(size, size), dtype="float32")
    assert verdict.agrees, verdict.reason
    assert K <= 3 or verdict.error_ratio < 0.7


# Small tiles and large ones, clusters that overhang, fewer stages than the ring has and many more.
SPLIT_SHAPES = [
    (1, 1, 1),
    (3, 130, 16),
    (65, 1, 17),
    (200, 136, 72),
    (129, 257, 1000),
    (1000, 1001, 1003),
    (2100, 2050, 64),
    (2049, 2306, 449),
    (4104, 2312, 328),
]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SPLIT_SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_split_layouts_and_edges(
    draw: Callable[..., Tensor], agrees_twice: Callable[..., None], shape: tuple[int, int, int], layout: str
) -> None:
    M, N, K = shape
    a = draw(M, K, F32, layout[0] == "t", pad=3)
    b = draw(K, N, F32, layout[1] == "t", pad=1)
    agrees_twice(matmul_split, a, b)
    if layout == "nn":
        wide, high = draw(M, 2 * K, F32), draw(3 * K, N, F32, True)
        agrees_twice(matmul_split, wide[:, ::2], high[::3])
        agrees_twice(matmul_split, a[:1].expand(M, K), b[:, :1].expand(K, N))
