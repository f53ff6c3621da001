"""Attention on Hopper's tensor cores: every plan, edges of tiles, schedules of many tiles, equal bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from cuda_ref.attention._plan import PLANS
from cuda_ref.attention.tma_wgmma import attention as in_order
from cuda_ref.attention.wgmma import attention as overlapped
from cuda_ref.attention.wgmma import run
from suite import ops
from suite.checking.judge import judge_together

KERNELS = [pytest.param(in_order, id="tma_wgmma"), pytest.param(overlapped, id="wgmma")]
# B, H, H_kv, S_q, S_k: less than a tile; edges; fewer queries and fewer keys; many tiles; odd rows of tiles
SIZES = [
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
    (2, 6, 3, 1500, 200),
]
HALVES = [(1, 2, 1, 128, 176), (1, 2, 2, 517, 300), (4, 33, 33, 333, 65), (3, 40, 8, 700, 700)]
"""Sizes for float16: only the instructions of products and roundings differ."""
CASES = [(size, "bfloat16") for size in SIZES] + [(size, "float16") for size in HALVES]


def drawn(size: tuple[int, ...], D: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    B, H, H_kv, S_q, S_k = size
    source = torch.Generator("cuda").manual_seed(sum(size))
    shapes = ((B, H, S_q, D), (B, H_kv, S_k, D), (B, H_kv, S_k, D))
    q, k, v = (torch.randn(shape, generator=source, device="cuda").to(dtype) for shape in shapes)
    return q, k, v


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_sizes(
    hopper: torch.device, nan_outputs: None, D: int, causal: bool, size: tuple[int, ...], dtype: str
) -> None:
    """Both kernels, and all plans of the second, in one test: the truth takes longer than they."""
    op = ops.get("attention")
    case = op.case((*size, D), dtype, causal=causal)
    inputs = op.make_inputs(case, 1, hopper)
    calls = {"tma_wgmma": in_order, "wgmma": overlapped}
    calls |= {f"plan {number}": partial(run, number) for number in range(len(PLANS[D]))}
    outs = [attention(*inputs, causal=causal) for attention in calls.values()]
    verdicts = judge_together(outs, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    for (name, attention), out, verdict in zip(calls.items(), outs, verdicts, strict=True):
        assert verdict.agrees, f"{name}: {verdict.reason}"
        assert out.is_contiguous()
        for _ in range(3):
            assert torch.equal(attention(*inputs, causal=causal), out), name


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
@pytest.mark.parametrize("D", [64, 128, 256])
def test_plans_give_the_same_bits_under_load(hopper: torch.device, D: int) -> None:
    """Many short tiles: the teams of a block run apart."""
    for causal in (False, True):
        inputs = drawn((32, 2048 // D, 2048 // D, 512, 512), D, torch.bfloat16)
        for number in range(len(PLANS[D])):
            first = run(number, *inputs, causal=causal)
            assert all(torch.equal(run(number, *inputs, causal=causal), first) for _ in range(20)), number


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128, 256])
def test_every_plan_ignores_hidden_values(hopper: torch.device, D: int) -> None:
    """Rows with a NaN are computed again: within the registers of each plan."""
    q, k, v = drawn((3, 6, 3, 500, 700), D, torch.bfloat16)
    for number in range(len(PLANS[D])):
        expected = run(number, q, k, v, causal=True)
        v[:, :, 400:] = torch.nan  # seen by queries from 200 on
        out = run(number, q, k, v, causal=True)
        assert torch.isnan(out[:, :, 200:]).all(), number
        torch.testing.assert_close(out[:, :, :200], expected[:, :, :200], rtol=0.02, atol=0.02)
        v = drawn((3, 6, 3, 500, 700), D, torch.bfloat16)[2]


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
