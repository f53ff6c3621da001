"""The matmul kernel with fitted tiles on a CPU: the kernel's own text, with the instructions of Hopper emulated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cuda_ref.matmul import auto
from cuda_ref.matmul._tiles import Plan, fitted_number

# M, N, K; rows and columns of a tile; parts of k; which operands are stored transposed
CASES = [
    pytest.param((70, 136, 200), 48, 64, 1, "nn", id="edges in all dimensions, one consumer"),
    pytest.param((40, 520, 1400), 32, 128, 1, "nt", id="several tiles of a block, stages are used again"),
    pytest.param((100, 200, 328), 112, 192, 1, "tn", id="three consumers"),
    pytest.param((33, 72, 1096), 16, 64, 3, "nt", id="parts of k are added"),
]


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize(("shape", "rows", "columns", "parts", "layout"), CASES)
def test_fitted_tiles_agree(
    emulated: None,
    nan_outputs: None,
    random: Callable[..., Tensor],
    shape: tuple[int, int, int],
    rows: int,
    columns: int,
    parts: int,
    layout: str,
) -> None:
    M, N, K = shape
    a = random(K, M, dtype=torch.bfloat16).t() if layout[0] == "t" else random(M, K, dtype=torch.bfloat16)
    b = random(N, K, dtype=torch.bfloat16).t() if layout[1] == "t" else random(K, N, dtype=torch.bfloat16)
    out = auto.run(Plan("fitted", fitted_number(rows, columns, 0), parts), a, b)
    truth = a.double() @ b.double()
    bound = truth.abs() * 2.0**-8 * 1.01 + (a.double().square() @ b.double().square()).sqrt() * 1e-5
    assert ((out.double() - truth).abs() <= bound).all()
