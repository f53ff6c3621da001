"""Attention of a few queries: parts of the keys, hidden keys, and the model that divides them; emulated on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from cuda_ref.attention import auto, wgmma
from cuda_ref.attention import decode as decoding
from cuda_ref.attention.decode import attention, parts_of

Random = Callable[..., Tensor]
Agrees = Callable[..., Tensor]
pytestmark = pytest.mark.usefixtures("nan_outputs")
SIZES = [  # B, H, H_kv, S_q, S_k, D: one part; parts of a step; two tiles of rows; fewer keys than queries
    (2, 4, 2, 1, 50, 128),
    (1, 2, 1, 1, 130, 64),
    (1, 4, 1, 5, 140, 64),
    (1, 2, 2, 7, 3, 64),
    (1, 1, 1, 2, 70, 256),
]


def drawn(random: Random, size: tuple[int, ...], dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor, Tensor]:
    B, H, H_kv, S_q, S_k, D = size
    return random(B, H, S_q, D, dtype=dtype), random(B, H_kv, S_k, D, dtype=dtype), random(B, H_kv, S_k, D, dtype=dtype)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(random: Random, agrees: Agrees, size: tuple[int, ...], causal: bool) -> None:
    agrees(attention, *drawn(random, size, torch.bfloat16 if causal else torch.float16), causal=causal)


def test_hidden_values_do_not_reach_the_result(random: Random) -> None:
    q, k, v = drawn(random, (1, 2, 1, 3, 67, 64))
    expected = attention(q, k, v, causal=True)
    v[:, :, -1] = math.nan
    k[:, :, -1] = math.inf
    out = attention(q, k, v, causal=True)
    assert torch.equal(out[:, :, :-1], expected[:, :, :-1])
    assert out[:, :, -1].isnan().all()


def test_the_same_bits_for_another_division_of_the_rows(random: Random) -> None:
    """A row's result does not depend on the other rows of its tile."""
    q, k, v = drawn(random, (1, 4, 1, 1, 130, 64))
    together = attention(q, k, v)
    assert all(torch.equal(attention(q[:, h : h + 1], k, v), together[:, h : h + 1]) for h in range(4))


CASES = {  # blocks, keys -> parts, on 132 multiprocessors, D=128, 16 bits
    (512, 8192): 1,
    (8, 131072): 33,
    (1, 64): 1,
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_by_shape(case: tuple[int, int]) -> None:
    assert parts_of(*case, 4 * 64 * 128, 132, 2)[0] == CASES[case]


def test_parts_cover_the_keys_once() -> None:
    model = partial(parts_of, step_bytes=2**15, processors=132, resident=2)
    for blocks in (1, 3, 8, 100, 1000):
        for keys in (1, 63, 64, 65, 1000, 4096, 100_000, 2_000_000):
            parts, part = model(blocks, keys)
            assert part % decoding.STEP == 0
            assert (parts - 1) * part < keys <= parts * part
            assert parts <= decoding.MOST_PARTS


def test_more_queries_are_refused(random: Random) -> None:
    q, k, v = drawn(random, (1, 2, 1, 17, 70, 64))
    with pytest.raises(NotImplementedError, match="attention: S_q must be at most 16; got 17"):
        attention(q, k, v)


def test_auto_says_what_it_runs(random: Random) -> None:
    few, many = (drawn(random, (1, 4, 2, S_q, 290, 64)) for S_q in (16, 17))
    assert auto.config(*few) == decoding.config(*few) == "decode parts=3"
    assert auto.config(*many, causal=True) == wgmma.config(*many, causal=True) == "wgmma 64x128 teams=3"
    q, k, v = few
    assert auto.config(q, k[:, :, ::2], v[:, :, ::2]) == "decode parts=3"
    wide = random(1, 2, 290, 64, dtype=torch.float16, pad=1)
    assert auto.config(q, wide, v) == "decode parts=3 (operands copied)"
    assert torch.equal(auto.attention(*few), attention(*few))
    assert auto.config(q[:, :, :0], k, v) == ""
