"""The plain kernel of attention, and tiles: head dimensions, lengths, strides, scales, masks, heads beyond a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from thinning import crossed, named
from torch import Tensor

from cuda_ref.attention import attention as plain
from cuda_ref.attention.tiles import attention as tiles

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NAN = math.nan

Random = Callable[..., Tensor]
Agrees = Callable[..., Tensor]
Kernel = Callable[..., Tensor]
pytestmark = [
    pytest.mark.usefixtures("nan_outputs"),
    pytest.mark.parametrize("attention", [pytest.param(plain, id="plain"), pytest.param(tiles, id="tiles")]),
]


@pytest.mark.parametrize(("dtype", "D"), crossed(named(DTYPES), named([1, 3, 32, 64, 65, 96, 128, 200, 256])))
def test_attention_head_dimensions(
    attention: Kernel, random: Random, D: int, dtype: torch.dtype, agrees: Agrees
) -> None:
    q, k, v = (random(1, H, S, D, dtype=dtype, pad=8 + -D % 8) for H, S in ((2, 5), (1, 37), (1, 37)))
    agrees(attention, q, k, v)
    q, k, v = (x.clone() for x in (q, k, v))
    agrees(attention, q, k, v, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_lengths(attention: Kernel, random: Random, causal: bool, agrees: Agrees) -> None:
    for S_q, S_k in itertools.product((1, 31, 33, 64, 70), (1, 32, 65)):
        q, k, v = random(2, 4, S_q, 64), random(2, 2, S_k, 64), random(2, 2, S_k, 64)
        out = agrees(attention, q, k, v, causal=causal)
        if causal:
            assert not out[:, :, : max(0, S_q - S_k)].any(), "a query that sees no key gives zeros"


def test_attention_strides(attention: Kernel, random: Random, agrees: Agrees) -> None:
    shape = (2, 3, 40, 64)
    stored = random(8000)
    kinds = (
        random(2, 40, 3, 64).transpose(1, 2),  # the heads of a token are contiguous
        random(*shape, shift=1),
        stored.as_strided(shape, (33, 8, 64, 1)),
        stored.as_strided(shape, (8, 33, 64, 1)),
        stored.as_strided(shape, (8, 16, 65, 1)),
        random(2, 1, 40, 64).expand(shape),
        random(2, 3, 64, 40).transpose(2, 3),
    )
    for position, kind in itertools.product(range(3), kinds):
        q, k, v = (kind if i == position else random(*shape) for i in range(3))
        agrees(attention, q, k, v, causal=position == 1)


def test_attention_scales(attention: Kernel, random: Random, agrees: Agrees) -> None:
    """A power of two has the same effect in sm_scale and in q."""
    q, k, v = random(1, 2, 33, 64), random(1, 2, 40, 64), random(1, 2, 40, 64)
    for factor in (-4.0, 0.0, 0.5):
        expected = attention(q * factor, k, v)
        assert torch.equal(attention(q, k, v, sm_scale=factor / 8), expected)
    agrees(attention, q, k, v)


def test_attention_of_huge_scores(attention: Kernel, random: Random, agrees: Agrees) -> None:
    """Weights are 0 and 1 for scores of either sign, without overflow."""
    q, k, v = random(1, 1, 40, 64), random(1, 1, 70, 64), random(1, 1, 70, 64)
    for size in (1e4, -1e4, 1e15):
        best = (size * q.double() @ k.double().mT).argmax(-1)[0, 0]
        out = attention(q, k, v, sm_scale=size)
        assert torch.allclose(out[0, 0], v[0, 0][best], rtol=1e-5), size
    agrees(attention, q * 1e3, k * 1e3, v)


def test_attention_ignores_hidden_keys(attention: Kernel, random: Random) -> None:
    """Keys after the last visible one have no effect; a NaN in a query stays in its row."""
    q, k, v = random(1, 1, 20, 64), random(1, 1, 20, 64), random(1, 1, 20, 64)
    expected = attention(q, k, v, causal=True)
    k[..., 10:, :], v[..., 10:, :] = 1e30, 1e30
    assert torch.equal(attention(q, k, v, causal=True)[..., :10, :], expected[..., :10, :])
    q[0, 0, 3, 5] = NAN
    out = attention(q, k, v, causal=True)[0, 0]
    assert out[3].isnan().all()
    assert torch.equal(out[:3], expected[0, 0, :3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_of_empty_tensors(attention: Kernel, device: str, dtype: torch.dtype) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    assert attention(empty(0, 2, 3, 64), empty(0, 1, 4, 64), empty(0, 1, 4, 64)).shape == (0, 2, 3, 64)
    assert attention(empty(1, 2, 0, 64), empty(1, 1, 4, 64), empty(1, 1, 4, 64)).shape == (1, 2, 0, 64)
    assert attention(empty(1, 0, 3, 64), empty(1, 0, 4, 64), empty(1, 0, 4, 64)).shape == (1, 0, 3, 64)
    assert attention(empty(1, 2, 3, 0), empty(1, 2, 4, 0), empty(1, 2, 4, 0)).shape == (1, 2, 3, 0)
    no_keys = attention(empty(1, 2, 3, 64), empty(1, 2, 0, 64), empty(1, 2, 0, 64))
    assert torch.equal(no_keys, torch.zeros(1, 2, 3, 64, dtype=dtype, device=device))


@pytest.mark.gpu
def test_attention_of_more_heads_than_a_grid_holds(attention: Kernel, device: str, agrees: Agrees) -> None:
    q, k, v = (torch.randn(70_000, 2, 3, 64, device=device).half() for _ in range(3))
    few = attention(q[-5:], k[-5:], v[-5:])
    agrees(attention, q[-5:], k[-5:], v[-5:])
    assert torch.equal(attention(q, k, v)[-5:], few)
