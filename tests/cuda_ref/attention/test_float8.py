"""Attention in float8 for Hopper: on a CPU the kernel's own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.attention import auto
from cuda_ref.attention.float8 import TILES, TRANSPOSED, attention, config
from suite import ops
from suite.checking.judge import judge

# B, H, H_kv, S_q, S_k, D: more than a tile of queries and than two blocks of keys, and no multiple
CASES = [
    pytest.param((1, 2, 1, 140, 290, 128), True, "normal", id="causal, groups of heads"),
    pytest.param((1, 2, 1, 70, 300, 64), False, "normal", id="three consumers"),
    pytest.param((1, 2, 1, 300, 100, 64), True, "normal", id="queries without keys"),
    pytest.param((1, 1, 1, 90, 200, 256), True, "normal", id="two boxes a row"),
    pytest.param((1, 2, 1, 40, 700, 128), False, "large_logits", id="rising maxima, stages are used again"),
    pytest.param((3, 2, 1, 20, 150, 128), True, "nan", id="hidden NaN"),
]
# The same on a GPU: less than a tile; edges of tiles; many tiles; odd rows of tiles
SIZES = [(1, 1, 1, 1, 1), (1, 2, 1, 128, 128), (2, 8, 2, 300, 517), (1, 2, 2, 517, 300), (1, 200, 40, 1111, 1111)]


def inputs_of(size: tuple[int, ...], causal: bool, family: str, device: torch.device) -> tuple[Tensor, ...]:
    op = ops.get("attention")
    return op.make_inputs(op.case(size, "float8_e4m3fn", inputs=family, causal=causal), 1, device)


def check(size: tuple[int, ...], causal: bool, family: str, device: torch.device) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Checks the output, and returns it with its inputs."""
    op = ops.get("attention")
    case = op.case(size, "float8_e4m3fn", inputs=family, causal=causal)
    inputs = inputs_of(size, causal, family, device)
    out = attention(*inputs, **op.arguments(case))
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
    assert verdict.error_ratio < 0.7
    return out, inputs


@pytest.mark.slow
@pytest.mark.parametrize(("size", "causal", "family"), CASES)
def test_emulated(emulated: None, nan_outputs: None, size: tuple[int, ...], causal: bool, family: str) -> None:
    check(size, causal, family, torch.device("cpu"))


@pytest.mark.slow
def test_scales_of_any_sign(emulated: None) -> None:
    """Two scales that change their sign change no score; one does what negated queries do."""
    q, k, v, scale_q, scale_k, scale_v = inputs_of((1, 1, 1, 20, 70, 64), True, "normal", torch.device("cpu"))
    expected = attention(q, k, v, scale_q, scale_k, scale_v, causal=True)
    assert torch.equal(attention(q, k, v, -scale_q, -scale_k, scale_v, causal=True), expected)
    negated = (-q.float()).to(q.dtype)
    assert torch.equal(attention(negated, k, v, scale_q, -scale_k, scale_v, causal=True), expected)
    assert torch.equal(attention(q, k, v, scale_q, scale_k, -scale_v, causal=True), -expected)
    means = v.float().cumsum(2)[:, :, 50:] / torch.arange(51, 71)[:, None] * scale_v
    torch.testing.assert_close(
        attention(q, k, v, 0 * scale_q, scale_k, scale_v, causal=True).float(), means, rtol=0.01, atol=0.01
    )


@pytest.mark.slow
def test_weights_stay_within_the_range_of_float8(emulated: None) -> None:
    """From one block of keys to the next, scores rise by 3.5 as exponents of 2: the sums are not rescaled."""
    op = ops.get("attention")
    case = op.case((1, 1, 1, 8, 256, 64), "float8_e4m3fn", causal=False)
    q, k, v, *_, scale_v = op.make_inputs(case, 1, torch.device("cpu"))
    q, k = torch.zeros_like(q.float()), torch.zeros_like(k.float())
    q[..., 0], k[:, :, 128:, 0] = 1.0, -1.0  # blocks come from the last to the first
    inputs = (q.to(v.dtype), k.to(v.dtype), v, torch.tensor(3.5 * 8 * math.log(2)), torch.tensor(1.0), scale_v)
    out = attention(*inputs)
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason


@pytest.mark.slow
def test_low_scores_after_a_hidden_block(emulated: None) -> None:
    """Most queries see no key of the first block. Scores of the next one are about -200 as exponents of 2."""
    op = ops.get("attention")
    case = op.case((1, 1, 1, 130, 130, 64), "float8_e4m3fn", causal=True)
    q, k, v, *_, scale_v = op.make_inputs(case, 1, torch.device("cpu"))
    q, k = q.float().clamp(-2, 2), k.float().clamp(-2, 2)
    q[..., 0], k[..., 0] = 16.0, -16.0
    inputs = (q.to(v.dtype), k.to(v.dtype), v, torch.tensor(200 / 256 * 8 * math.log(2)), torch.tensor(1.0), scale_v)
    out = attention(*inputs, causal=True)
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason


def test_tiles_are_those_of_the_kernel() -> None:
    text = (build.HERE / "attention/float8.cu").read_text()
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for D, consumers, keys in re.findall(r"Float8Plan<(\d+), (\d+), (\d+)>", text):
        found[int(D)] = (*found.get(int(D), ()), (64 * int(consumers), int(keys)))
    assert found == TILES
    assert f"TRANSPOSED = {TRANSPOSED};" in (build.HERE / "attention/float8.cuh").read_text()


def test_auto_chooses_it_for_float8() -> None:
    q = torch.zeros(1, 1, 5, 64, dtype=torch.float8_e4m3fn)
    assert auto.config(q, q, q, *3 * [torch.tensor(1.0)]) == config(q, q, q) == "transpose_values; float8 192x128"


def test_what_is_refused() -> None:
    one, q = torch.tensor(1.0), torch.zeros(1, 1, 8, 64, dtype=torch.float8_e4m3fn)
    wide = torch.zeros(1, 1, 8, 96, dtype=torch.float8_e4m3fn)
    for x, arguments, message in (
        (wide, {}, "D must be 64, 128 or 256; got D=96"),
        (q, {"sm_scale": -1.0}, "sm_scale must not be negative; got -1.0"),
        (q, {}, "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            attention(x, x, x, one, one, one, **arguments)
    with pytest.raises(NotImplementedError, match=r"needs float8_e4m3fn; got torch\.float16"):
        attention(q.half(), q.half(), q.half())
    with pytest.raises(ValueError, match="so scale_q must be float32"):
        attention(q, q, q)
    assert attention(q[:, :, :0], q, q, one, one, one).shape == (1, 1, 0, 64)
    assert torch.equal(attention(q, q[:, :, :0], q[:, :, :0], one, one, one), torch.zeros_like(q).bfloat16())


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", TILES)
def test_sizes(hopper: torch.device, nan_outputs: None, D: int, causal: bool, size: tuple[int, ...]) -> None:
    out, inputs = check((*size, D), causal, "normal", hopper)
    assert out.is_contiguous()
    assert all(torch.equal(attention(*inputs, causal=causal), out) for _ in range(20))


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["large_logits", "nan", "empty_rows", "transposed", "misaligned_rows"])
def test_families(hopper: torch.device, nan_outputs: None, family: str) -> None:
    for causal in (True,) if family == "empty_rows" else (False, True):
        check((3, 4, 2, 300, 290, 128), causal, family, hopper)


@pytest.mark.gpu
@pytest.mark.parametrize("D", TILES)
def test_twenty_calls_give_the_same_bits_under_load(hopper: torch.device, D: int) -> None:
    for size in ((2, 2048 // D, 2048 // D, 4096, 4096, D), (32, 2048 // D, 2048 // D, 512, 512, D)):
        for causal in (False, True):
            inputs = inputs_of(size, causal, "normal", hopper)
            first = attention(*inputs, causal=causal)
            assert all(torch.equal(attention(*inputs, causal=causal), first) for _ in range(20))
