"""Agreement: units in the last place, bounds, and what a verdict says. A wrong result must never pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from suite import check, ops
from suite.op import DTYPES, Case, Op

CPU = torch.device("cpu")


def judge(op: Op, case: Case, output: torch.Tensor, seed: int = 0) -> check.Verdict:
    inputs = op.make_inputs(case, seed, CPU)
    return check.compare(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.dtype)


@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_ulp_is_numpy_spacing(x: float) -> None:
    value = torch.tensor([x], dtype=torch.float64)
    assert float(check.ulp(value, "float32")) == float(np.spacing(np.float32(abs(x))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulp_separates_neighbours(dtype: str) -> None:
    torch_dtype = getattr(torch, dtype)
    for x in (0.0, 1.0, 1.5, 3.999, 1e-6, 65000.0):
        here = torch.tensor([x], dtype=torch_dtype)
        integer = torch.int32 if dtype == "float32" else torch.int16
        above = (here.view(integer) + 1).view(torch_dtype)
        step = above.double() - here.double()
        assert float(check.ulp(here.double(), dtype)) == float(step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ops.names())
def test_the_rounded_truth_passes_with_a_ratio_of_at_most_two_thirds(name: str, dtype: str) -> None:
    op = ops.get(name)
    case = next(c for c in op.default_cases("cpu") if c.dtype == dtype)
    output = torch.empty(op.output_shape(case), dtype=getattr(torch, dtype))
    for piece in op.truth(op.make_inputs(case, 0, CPU), case):
        output[piece.index] = piece.value.to(output.dtype)
    verdict = judge(op, case, output)
    assert verdict.agrees
    assert verdict.error_ratio < 0.67
    assert verdict.max_ulp < 0.501, "torch rounds float64 to 16 bits through float32"


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_add_that_truncates_is_wrong(dtype: str) -> None:
    op = ops.get("vector_add")
    case = op.case((10_007,), dtype)
    a, b = op.make_inputs(case, 0, CPU)
    exact = a.double() + b.double()
    rounded = exact.to(a.dtype)
    too_far = rounded.double().abs() > exact.abs()
    integer = torch.int32 if dtype == "float32" else torch.int16
    truncated = torch.where(too_far, (rounded.view(integer) - 1).view(a.dtype), rounded)
    verdict = judge(op, case, truncated)
    assert not verdict.agrees
    assert "expected" in verdict.reason


def matmul_inputs(
    k: int, dtype: str = "float32", precision: str = "ieee"
) -> tuple[Op, Case, torch.Tensor, torch.Tensor]:
    op = ops.get("matmul")
    case = op.case((128, 96, k), dtype, precision)
    a, b = op.make_inputs(case, 0, CPU)
    return op, case, a, b


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest number of 11 significant bits."""
    bits = x.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def truncate_to_tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("k", [1, 16, 256, 4096, 16384])
def test_tf32_does_not_pass_as_ieee(k: int) -> None:
    op, case, a, b = matmul_inputs(k)
    assert judge(op, case, a @ b).error_ratio < 0.7
    assert judge(op, case, to_tf32(a) @ to_tf32(b)).error_ratio > 1


@pytest.mark.parametrize("rounding", [to_tf32, truncate_to_tf32], ids=["nearest", "truncated"])
@pytest.mark.parametrize("k", [1, 16, 256, 4096, 16384])
def test_tf32_passes_as_tf32_and_bfloat16_does_not(k: int, rounding: object) -> None:
    op, case, a, b = matmul_inputs(k, precision="tf32")
    assert callable(rounding)
    assert judge(op, case, rounding(a) @ rounding(b)).error_ratio < 0.9
    assert judge(op, case, (a.bfloat16().double() @ b.bfloat16().double()).float()).error_ratio > 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [16, 256, 4096, 16384])
def test_sums_in_sixteen_bits_do_not_pass(k: int, dtype: str) -> None:
    op, case, a, b = matmul_inputs(k, dtype)
    half = k // 2
    parts = (
        (a[:, :half].double() @ b[:half].double()).to(a.dtype),
        (a[:, half:].double() @ b[half:].double()).to(a.dtype),
    )
    assert judge(op, case, (a.double() @ b.double()).to(a.dtype)).error_ratio < 0.7
    assert judge(op, case, parts[0] + parts[1]).error_ratio > 1


def attention_case(dtype: str) -> tuple[Op, Case, tuple[torch.Tensor, ...]]:
    op = ops.get("attention")
    case = op.case((1, 2, 2, 96, 200, 64), dtype, causal=True)
    return op, case, op.make_inputs(case, 0, CPU)


def softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shift: int) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.arange(k.shape[-2])[None, :] > torch.arange(q.shape[-2])[:, None] + shift
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v


def test_attention_with_tf32_products_does_not_pass_as_float32() -> None:
    op, case, (q, k, v) = attention_case("float32")
    assert judge(op, case, softmax_attention(q, k, v, 104)).error_ratio < 0.7
    assert judge(op, case, softmax_attention(to_tf32(q), to_tf32(k), v, 104)).error_ratio > 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_causal_mask_off_by_one_is_wrong(dtype: str) -> None:
    op, case, inputs = attention_case(dtype)
    q, k, v = (x.double() for x in inputs)
    assert judge(op, case, softmax_attention(q, k, v, 104).to(inputs[0].dtype)).agrees
    assert not judge(op, case, softmax_attention(q, k, v, 103).to(inputs[0].dtype)).agrees


def test_causal_attention_is_aligned_to_the_last_key_and_empty_rows_are_zero() -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, 5, 3, 64), causal=True)
    inputs = op.make_inputs(case, 0, CPU)
    (piece,) = op.truth(inputs, case)
    assert torch.equal(piece.value[0, 0, :2], torch.zeros(2, 64, dtype=torch.float64))
    assert torch.equal(piece.value[0, 0, 2], inputs[2][0, 0, 0].double())
    assert op.flops(case) == 4 * 64 * (1 + 2 + 3)


@pytest.mark.parametrize("name", ops.names())
@pytest.mark.parametrize("poison", [math.nan, math.inf, 0.0])
def test_an_element_that_was_not_written_is_wrong(name: str, poison: float) -> None:
    op = ops.get(name)
    case = next(c for c in op.default_cases("cpu") if c.dtype == "float32" and not c.causal)
    output = torch.empty(op.output_shape(case))
    for piece in op.truth(op.make_inputs(case, 0, CPU), case):
        output[piece.index] = piece.value.float()
    output.reshape(-1)[-1] = poison
    verdict = judge(op, case, output)
    assert not verdict.agrees
    assert f"got {poison:g}" in verdict.reason


def test_nan_and_infinities_must_stand_where_the_truth_has_them() -> None:
    def truths(*values: float) -> list[check.Truth]:
        value = torch.tensor(values, dtype=torch.float64)
        return [check.Truth((slice(0, len(values)),), value, torch.full_like(value, 1e-3))]

    def verdict(got: list[float], *expected: float) -> bool:
        return check.compare(torch.tensor(got), truths(*expected), shape=(len(got),), dtype="float32").agrees

    inf, nan = math.inf, math.nan
    assert verdict([nan, inf, -inf, 1.0], nan, inf, -inf, 1.0)
    assert not verdict([1.0], nan)
    assert not verdict([nan], 1.0)
    assert not verdict([-inf], inf)
    assert not verdict([3e38], inf)
    assert not verdict([inf], 1.0)
    assert verdict([inf], 1e39), "a finite truth beyond the largest float32 rounds to infinity"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (torch.zeros(4), "has shape (4,), expected (3,)"),
        (torch.zeros(3, dtype=torch.float64), "is float64, expected float32"),
        ([0.0, 0.0, 0.0], "is a list, not an array"),
    ],
    ids=["shape", "dtype", "type"],
)
def test_a_result_of_the_wrong_kind_is_wrong(output: torch.Tensor, reason: str) -> None:
    op = ops.get("vector_add")
    verdict = judge(op, op.case((3,)), output)
    assert not verdict.agrees
    assert reason in verdict.reason


@given(st.integers(1, 10**10))
def test_the_allowed_deviation_grows_slowly(count: int) -> None:
    assert 6.5 < check.deviations(count) < 10


@settings(deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 500))
def test_blocks_cover_every_element_once(shape: list[int], room: int) -> None:
    from suite.ops import _draw

    seen = torch.zeros(shape, dtype=torch.int32)
    original, _draw.BLOCK_ELEMENTS = _draw.BLOCK_ELEMENTS, room
    try:
        for index in _draw.blocks(tuple(shape)):
            assert seen[index].numel() <= room
            seen[index] += 1
    finally:
        _draw.BLOCK_ELEMENTS = original
    assert bool((seen == 1).all())
