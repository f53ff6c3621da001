"""The gradients of attention in float8 for Hopper: on a CPU the kernels' own text, with TMA, mbarriers and wgmma
emulated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cuda_ref.attention_grad import auto
from cuda_ref.attention_grad.float8 import STEP_US, TILE, attention_grad, config, run
from cuda_ref.attention_grad.wgmma import parts_of_a_group
from suite import ops
from suite.checking.judge import judge

DTYPE = "float8_e4m3fn"
# B, H, H_kv, S_q, S_k, D: more than a tile of queries and than two blocks of keys, and no multiple
CASES = [
    pytest.param((1, 2, 1, 140, 290, 128), True, "normal", id="causal, groups of heads"),
    pytest.param((1, 1, 1, 330, 400, 128), False, "normal", id="stages are used again"),
    pytest.param((1, 2, 1, 300, 100, 64), True, "normal", id="queries without keys"),
    pytest.param((2, 4, 2, 70, 150, 64), False, "large_logits", id="large scores, batch entries"),
    pytest.param((1, 1, 1, 1, 1, 128), False, "normal", id="one pair"),
]
# The same on a GPU: less than a tile; edges of tiles; many tiles; a group of 8 heads
SIZES = [(1, 1, 1, 1, 1), (1, 2, 1, 128, 128), (2, 8, 2, 300, 517), (1, 2, 2, 517, 300), (1, 16, 2, 700, 700),
         (1, 40, 8, 1111, 1111), (1, 3, 1, 4097, 4099)]  # fmt: skip


def inputs_of(size: tuple[int, ...], causal: bool, family: str, device: torch.device) -> tuple[Tensor, ...]:
    op = ops.get("attention_grad")
    return op.make_inputs(op.case(size, DTYPE, inputs=family, causal=causal), 1, device)


def check(size: tuple[int, ...], causal: bool, family: str, device: torch.device) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Checks the gradients, and returns them, joined, with their inputs."""
    op = ops.get("attention_grad")
    case = op.case(size, DTYPE, inputs=family, causal=causal)
    inputs = inputs_of(size, causal, family, device)
    out = torch.cat([each.flatten() for each in attention_grad(*inputs, **op.arguments(case))])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
    assert verdict.error_ratio < 0.7
    return out, inputs


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("size", "causal", "family"), CASES)
def test_emulated(emulated: None, nan_outputs: None, size: tuple[int, ...], causal: bool, family: str) -> None:
    check(size, causal, family, torch.device("cpu"))


def check_parts(parts: int, size: tuple[int, ...], causal: bool, device: torch.device) -> None:
    op = ops.get("attention_grad")
    case = op.case(size, DTYPE, causal=causal)
    inputs = op.make_inputs(case, 1, device)
    found = [torch.cat([x.flatten() for x in run(parts, *inputs, causal=causal)]) for _ in range(2)]
    verdict = judge(found[0], op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
    assert torch.equal(*found)


@pytest.mark.slow
@pytest.mark.thorough
def test_parts_emulated(emulated: None, nan_outputs: None) -> None:
    check_parts(2, (2, 8, 2, 90, 150, 64), True, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_every_number_of_parts(hopper: torch.device, nan_outputs: None, D: int, causal: bool) -> None:
    for size in ((1, 16, 2, 700, 333, D), (2, 8, 1, 65, 515, D)):
        for parts in (1, 2, 4, 8):
            check_parts(parts, size, causal, hopper)


@pytest.mark.slow
@pytest.mark.thorough
def test_scales_of_any_sign(emulated: None) -> None:
    """Scores stay when two scales change their sign, or one scale and the queries: then so do the weights."""
    size = (1, 1, 1, 20, 70, 64)
    q, k, v, do, scale_q, scale_k, scale_v, scale_do = inputs_of(size, True, "normal", torch.device("cpu"))
    rest = scale_v, scale_do
    dq, dk, dv = attention_grad(q, k, v, do, scale_q, scale_k, *rest, causal=True)
    found = attention_grad(q, k, v, do, -scale_q, -scale_k, *rest, causal=True)
    assert all(torch.equal(x, y) for x, y in zip(found, (-dq, -dk, dv), strict=True))
    negated = (-q.float()).to(q.dtype)
    found = attention_grad(negated, k, v, do, scale_q, -scale_k, *rest, causal=True)
    assert all(torch.equal(x, y) for x, y in zip(found, (-dq, -dk, dv), strict=True))
    found = attention_grad(q, k, v, do, scale_q, scale_k, scale_v, -scale_do, causal=True)
    assert all(torch.equal(x, -y) for x, y in zip(found, (dq, dk, dv), strict=True))


def test_auto_chooses_it_for_float8() -> None:
    q = torch.zeros(1, 1, 5, 64, dtype=torch.float8_e4m3fn)
    text = "transpose; float8_statistics 128x128; float8_dk_dv 64x128 parts=1; float8_dq 128x128"
    assert auto.config(q, q, q, q, *4 * [torch.tensor(1.0)]) == config(q, q, q, q) == text
    assert auto.config(*4 * [q.half()]).startswith("wgmma ")


def test_few_key_heads_are_divided_and_many_are_not() -> None:
    def parts(S: int, causal: bool) -> int:
        return parts_of_a_group(1, 64, 8, S, S, 128, causal, 132, queries=TILE, step_us=STEP_US)

    assert parts(2048, True) > 1
    assert [parts(S, causal) for S, causal in ((2048, False), (4096, False), (4096, True), (8192, True))] == 4 * [1]


def test_what_is_refused() -> None:
    scales, q = 4 * [torch.tensor(1.0)], torch.zeros(1, 1, 8, 64, dtype=torch.float8_e4m3fn)
    wide = torch.zeros(1, 1, 8, 96, dtype=torch.float8_e4m3fn)
    for x, arguments, message in (
        (wide, {}, "D must be 64 or 128; got D=96"),
        (q, {"sm_scale": -1.0}, "sm_scale must not be negative; got -1.0"),
        (q, {}, "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            attention_grad(x, x, x, x, *scales, **arguments)
    with pytest.raises(NotImplementedError, match=r"needs float8_e4m3fn; got torch\.float16"):
        attention_grad(*4 * [q.half()])
    with pytest.raises(ValueError, match="so scale_q must be float32"):
        attention_grad(q, q, q, q)
    dq, dk, dv = attention_grad(q[:, :, :0], q, q, q[:, :, :0], *scales)
    assert dq.shape == (1, 1, 0, 64)
    assert torch.equal(dk, torch.zeros_like(q).bfloat16())
    assert torch.equal(dv, dk)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_sizes(hopper: torch.device, nan_outputs: None, D: int, causal: bool, size: tuple[int, ...]) -> None:
    out, inputs = check((*size, D), causal, "normal", hopper)
    for _ in range(20):
        assert torch.equal(torch.cat([each.flatten() for each in attention_grad(*inputs, causal=causal)]), out)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["large_logits", "empty_rows", "transposed", "misaligned_rows"])
def test_families(hopper: torch.device, nan_outputs: None, family: str) -> None:
    for causal in (True,) if family == "empty_rows" else (False, True):
        check((3, 4, 2, 300, 290, 128), causal, family, hopper)


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128])
def test_twenty_calls_give_the_same_bits_under_load(hopper: torch.device, D: int) -> None:
    for size in ((2, 2048 // D, 2048 // D, 4096, 4096, D), (32, 2048 // D, 2048 // D, 512, 512, D)):
        for causal in (False, True):
            inputs = inputs_of(size, causal, "normal", hopper)
            first = attention_grad(*inputs, causal=causal)
            for _ in range(20):
                found = attention_grad(*inputs, causal=causal)
                assert all(torch.equal(x, y) for x, y in zip(found, first, strict=True))
