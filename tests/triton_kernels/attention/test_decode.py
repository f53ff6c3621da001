"""Attention of a few queries: how the keys are divided, and parts of the keys that hold nothing."""

from __future__ import annotations

import math

import pytest
import torch

from triton_kernels.attention import attention
from triton_kernels.attention._decode import DECODING, parts_of

CASES = {  # programs, keys -> parts, on 132 multiprocessors, D=128, 16 bits
    (512, 8192): 1,
    (8, 131072): 33,
    (1, 64): 1,
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_by_shape(case: tuple[int, int]) -> None:
    assert parts_of(*case, 64, 2**15, 132)[0] == CASES[case]


def test_parts_cover_the_keys_once() -> None:
    for programs in (1, 3, 8, 100, 1000):
        for keys in (1, 63, 64, 65, 1000, 4096, 100_000, 2_000_000):
            parts, part = parts_of(programs, keys, 64, 2**15, 132)
            assert part % 64 == 0
            assert (parts - 1) * part < keys <= parts * part


@pytest.mark.parametrize("hidden", [slice(0, 64), slice(64, 130), slice(0, 130)], ids=["first", "last", "all"])
def test_parts_whose_keys_all_score_minus_infinity(hidden: slice, device: str) -> None:
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, S, 16, generator=source).to(device) for S in (DECODING, 130, 130))
    q[..., 0] = q[..., 0].abs() + 1.0
    k[:, :, hidden, 0] = -math.inf
    weights = torch.softmax(q.double() @ k.double().mT / 4.0, dim=-1)
    assert torch.allclose(attention(q, k, v).double(), weights @ v.double(), atol=1e-5, equal_nan=True)
