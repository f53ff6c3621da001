"""Attention on Hopper's tensor cores: every plan, edges of tiles, schedules of many tiles, equal bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cuda_ref.attention_tma_wgmma import attention as in_order
from cuda_ref.attention_wgmma import attention as overlapped

KERNELS = [pytest.param(in_order, id="tma_wgmma"), pytest.param(overlapped, id="wgmma")]
SIZES = [  # B, H, H_kv, S_q, S_k: less than a tile; edges; fewer queries and fewer keys; many tiles; odd rows of tiles
    (1, 1, 1, 1, 1),
    (1, 2, 1, 128, 176),
    (2, 8, 2, 300, 517),
    (1, 2, 2, 517, 300),
    (3, 40, 8, 700, 700),
    (1, 140, 140, 256, 256),
    (1, 4, 4, 1, 1000),
    (4, 33, 33, 333, 65),
    (1, 200, 40, 1111, 1111),
    (1, 3, 1, 4097, 4099),
]


def drawn(size: tuple[int, ...], D: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    B, H, H_kv, S_q, S_k = size
    source = torch.Generator("cuda").manual_seed(sum(size))
    shapes = ((B, H, S_q, D), (B, H_kv, S_k, D), (B, H_kv, S_k, D))
    q, k, v = (torch.randn(shape, generator=source, device="cuda").to(dtype) for shape in shapes)
    return q, k, v


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("attention", KERNELS)
def test_sizes(
    attention: Callable[..., Tensor],
    hopper: torch.device,
    agrees: Callable[..., Tensor],
    D: int,
    causal: bool,
    dtype: torch.dtype,
    size: tuple[int, ...],
) -> None:
    inputs = drawn(size, D, dtype)
    out = agrees(attention, *inputs, causal=causal)
    for _ in range(3):
        assert torch.equal(attention(*inputs, causal=causal), out)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("attention", KERNELS)
def test_twenty_calls_give_the_same_bits(
    attention: Callable[..., Tensor], hopper: torch.device, D: int, causal: bool
) -> None:
    inputs = drawn((2, 2048 // D, 2048 // D, 4096, 4096), D, torch.bfloat16)
    first = attention(*inputs, causal=causal)
    assert all(torch.equal(attention(*inputs, causal=causal), first) for _ in range(20))


@pytest.mark.gpu
@pytest.mark.parametrize("attention", KERNELS)
def test_rows_that_tma_cannot_read_are_copied(attention: Callable[..., Tensor], hopper: torch.device) -> None:
    q, k, v = drawn((2, 4, 2, 70, 90), 64, torch.bfloat16)
    expected = attention(q, k, v)
    padded = [torch.nn.functional.pad(x, (3, 2))[..., 3:-2] for x in (q, k, v)]
    inside = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for given in (padded, inside, [q.contiguous(), k, v]):
        assert torch.equal(attention(*given), expected)


@pytest.mark.parametrize("attention", KERNELS)
def test_what_is_refused(attention: Callable[..., Tensor]) -> None:
    q = torch.zeros(1, 1, 24, 64, dtype=torch.bfloat16)  # fewer queries are emulated
    for given, arguments, message in (
        (q.float(), {}, "float16 and bfloat16; got torch.float32"),
        (torch.zeros(1, 1, 8, 96, dtype=torch.bfloat16), {}, "D must be 64, 128 or 256; got D=96"),
        (q, {"sm_scale": -1.0}, "sm_scale must not be negative; got -1.0"),
        (q, {}, "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            attention(given, given, given, **arguments)
    assert attention(q[:, :, :0], q, q).shape == (1, 1, 0, 64)
    assert torch.equal(attention(q, q[:, :, :0], q[:, :, :0]), torch.zeros_like(q))
