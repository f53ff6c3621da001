"""Agreement: units in the last place, bounds, and what a verdict says. A wrong result must never pass."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from suite import ops
from suite.core.errors import SuiteError
from suite.numerics import check
from suite.numerics.formats import DTYPES
from suite.problem import generators as _draw
from suite.problem.case import Case
from suite.problem.operation import Operation
from validation import arithmetic_models as arithmetic

CPU = torch.device("cpu")
RIGHT = 0.7
"""More than any right kernel's error ratio."""


def judge(op: Operation, case: Case, output: torch.Tensor, seed: int = 0) -> check.Verdict:
    inputs = op.make_inputs(case, seed, CPU)
    return check.compare(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.dtype)


def pieces(*values: float, limit: float = 1e-3) -> list[check.Truth]:
    value = torch.tensor(values, dtype=torch.float64)
    return [check.Truth((slice(0, len(values)),), value, torch.full_like(value, limit))]


def against(got: list[float], *expected: float, dtype: str = "float32", limit: float = 1e-3) -> check.Verdict:
    output = torch.tensor(got, dtype=getattr(torch, dtype))
    return check.compare(output, pieces(*expected, limit=limit), shape=(len(got),), dtype=dtype)


# Units in the last place


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


# Bounds: right arithmetic has a ratio below RIGHT, a mistake of one unit of precision one above 1


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid(dtype: str) -> None:
    right, wrong = arithmetic.sigmoids(dtype)
    assert _out_of_order({name: arithmetic.sigmoid_ratio(f, dtype) for name, f in right.items()}, wrong=False) == {}
    assert _out_of_order({name: arithmetic.sigmoid_ratio(f, dtype) for name, f in wrong.items()}, wrong=True) == {}


@pytest.mark.parametrize("k", arithmetic.KS)
@pytest.mark.parametrize(("dtype", "precision"), arithmetic.KINDS + arithmetic.FLOAT8_KINDS)
def test_matmul(dtype: str, precision: str, k: int) -> None:
    right = arithmetic.right_products(dtype, precision)
    wrong = arithmetic.wrong_products(dtype, precision, k)
    for products, are_wrong in ((right, False), (wrong, True)):
        ratios = {name: arithmetic.matmul_ratio(product, k, dtype, precision) for name, product in products.items()}
        assert _out_of_order(ratios, wrong=are_wrong) == {}


@pytest.mark.parametrize(("shape", "causal"), arithmetic.ATTENTION)
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention(dtype: str, shape: tuple[int, int, int], causal: bool) -> None:
    plain = arithmetic.attention_case(shape, dtype, causal)
    draws = (plain, ops.get("attention").second(plain))
    assert draws[0] != draws[1]
    for name, settings_ in arithmetic.right_attention(dtype).items():
        ratios = {f"{name}, {case.inputs}": arithmetic.attention_ratio(settings_, case) for case in draws}
        assert _out_of_order(ratios, wrong=False) == {}
    for name, settings_ in arithmetic.wrong_attention(dtype).items():
        if shape[1] >= arithmetic.needs_keys(name):
            ratios = {name: max(arithmetic.attention_ratio(settings_, case) for case in reversed(draws))}
            assert _out_of_order(ratios, wrong=True) == {}


def test_sums_of_subnormal_numbers_are_rounded_to_their_spacing() -> None:
    op = ops.get("matmul")
    case = op.case((32, 32, 200))
    a, b = op.make_inputs(case, 0, CPU)
    a *= 2.0**-140
    output = torch.from_numpy(arithmetic.separate(a.double().numpy(), b.double().numpy()))
    verdict = check.compare(output, op.truth((a, b), case), shape=(32, 32), dtype="float32")
    assert 0.1 < verdict.error_ratio < RIGHT
    output[3, 5] += 100 * 2.0**-149
    assert not check.compare(output, op.truth((a, b), case), shape=(32, 32), dtype="float32").agrees


def _out_of_order(ratios: dict[str, float], *, wrong: bool) -> dict[str, float]:
    return {name: ratio for name, ratio in ratios.items() if (ratio <= 1.0 if wrong else ratio >= RIGHT)}


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_one_output_of_one_product_is_judged(precision: str) -> None:
    op = ops.get("matmul")
    case = op.case((1, 1, 1), "float32", precision)
    a, b = op.make_inputs(case, 0, CPU)
    assert judge(op, case, a @ b).error_ratio <= 2 / 3
    assert judge(op, case, (a @ b) * 1.01).error_ratio > 1


@given(st.sampled_from([1, 12_288, 2**20, 2**24]), st.floats(0.0, 10.0))
def test_sums_whose_partial_sums_wander_are_refused_as_rarely_as_is_said(count: int, total: float) -> None:
    assert arithmetic.refused(count, total) < check.FALSE_ALARM
    assert arithmetic.refused(2**31, total) < 3 * check.FALSE_ALARM


@given(st.integers(1, 10**10))
def test_the_allowed_deviation_grows_slowly(count: int) -> None:
    assert 5.3 < check.deviations(count) < 9


exponents = st.integers(-20, 20)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 40), st.sampled_from(arithmetic.KINDS), exponents, exponents
)
def test_powers_of_two_leave_the_ratio_of_a_product(
    m: int, n: int, k: int, kind: tuple[str, str], in_a: int, in_b: int
) -> None:
    op = ops.get("matmul")
    case = op.case((m, n, k), *kind)
    a, b = (x.to(torch.float32) for x in op.make_inputs(case, k, CPU))
    ratios = []
    for left, right in ((a, b), (a * 2.0**in_a, b * 2.0**in_b)):
        output = left.bfloat16().float() @ right
        truths = op.truth((left, right), replace(case, dtype="float32"))
        ratios.append(check.compare(output, truths, shape=(m, n), dtype="float32").error_ratio)
    assert ratios[0] == ratios[1]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([8, 64]), st.booleans(), exponents)
def test_powers_of_two_in_v_leave_the_ratio_of_attention(s_q: int, s_k: int, d: int, causal: bool, power: int) -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, s_q, s_k, d), causal=causal)
    q, k, v = op.make_inputs(case, 0, CPU)
    ratios = []
    for values in (v, v * 2.0**power):
        output = _softmax_attention(q, k, values, case)
        truths = op.truth((q, k, values), case)
        ratios.append(check.compare(output, truths, shape=output.shape, dtype="float32").error_ratio)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6), "ratios differ by float64's roundings"
    assert ratios[0] < RIGHT


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=8), st.floats(0.0, 1e30), st.floats(1.0, 10.0))
def test_a_larger_error_has_no_smaller_ratio(values: list[float], error: float, times: float) -> None:
    expected = torch.tensor(values, dtype=torch.float32).double()
    truths = [check.Truth((slice(0, len(values)),), expected, check.rounding_limit(expected, "float32"))]
    near, far = ((expected + e).float() for e in (error, error * times))
    ratios = [check.compare(x, truths, shape=tuple(x.shape), dtype="float32").error_ratio for x in (near, far)]
    assert ratios[0] <= ratios[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_terms_outputs_and_spread_never_tighten_a_bound(dtype: str) -> None:
    def limit(value: float = 1.0, spread: float = 3.0, terms: int = 50, count: int = 1000) -> float:
        one = torch.tensor([value], dtype=torch.float64)
        return float(check.matmul_limit(one, one.new_tensor([spread**2]), terms, count, dtype, "ieee"))

    for name, values in {"spread": (1, 3, 9), "terms": (1, 2, 3, 50, 5000), "count": (1, 10**3, 10**9)}.items():
        limits = [limit(**{name: value}) for value in values]
        assert limits == sorted(limits)


# Attention's mask


def _softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: Case, shift: int = 0) -> torch.Tensor:
    s_q, s_k, d = case["S_q"], case["S_k"], case["D"]
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    last = torch.arange(s_q)[:, None] + (s_k - s_q + shift if case.causal else s_k)
    hidden = torch.arange(s_k)[None, :] > last
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1).masked_fill(hidden, 0.0) @ v


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_causal_mask_off_by_one_is_wrong(dtype: str) -> None:
    op = ops.get("attention")
    case = op.case((1, 2, 2, 96, 200, 64), dtype, causal=True)
    inputs = op.make_inputs(case, 0, CPU)
    q, k, v = (x.double() for x in inputs)
    assert judge(op, case, _softmax_attention(q, k, v, case).to(inputs[0].dtype)).agrees
    assert not judge(op, case, _softmax_attention(q, k, v, case, -1).to(inputs[0].dtype)).agrees


def test_causal_attention_is_aligned_to_the_last_key_and_empty_rows_are_zero() -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, 5, 3, 64), causal=True)
    inputs = op.make_inputs(case, 0, CPU)
    (piece,) = op.truth(inputs, case)
    assert torch.equal(piece.value[0, 0, :2], torch.zeros(2, 64, dtype=torch.float64))
    assert torch.equal(piece.value[0, 0, 2], inputs[2][0, 0, 0].double())
    assert op.flops(case) == 4 * 64 * (1 + 2 + 3)
    output = _softmax_attention(*inputs, case)
    assert judge(op, case, output).agrees
    output[0, 0, 0, 7] = 1e-45
    assert not judge(op, case, output).agrees, "zero means zero"


def test_attention_depends_on_nan_and_infinities_only_where_a_query_sees_them() -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, 4, 4, 64), causal=True)
    q, k, v = op.make_inputs(case, 0, CPU)
    plain = next(iter(op.truth((q, k, v), case)))
    v[0, 0, 2, 5] = math.inf
    k[0, 0, 3, 0] = math.nan
    (piece,) = op.truth((q, k, v), case)
    assert bool(piece.value[0, 0, 3].isnan().all())
    assert float(piece.value[0, 0, 2, 5]) == math.inf
    others = torch.ones(1, 1, 4, 64, dtype=torch.bool)
    others[0, 0, 2, 5] = others[0, 0, 3] = False
    assert torch.equal(piece.value[others], plain.value[others])
    assert bool(piece.limit[others].isfinite().all())


# Verdicts


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
    assert verdict.reason.startswith("value: at [" if poison == 0 else "not finite: at [")
    assert f"got {poison:g}, expected" in verdict.reason


def test_nan_and_infinities_must_stand_where_the_truth_has_them() -> None:
    inf, nan = math.inf, math.nan
    assert against([nan, inf, -inf, 1.0], nan, inf, -inf, 1.0).agrees
    assert against([1.0], nan).reason == "value: at [0] got 1, expected nan"
    assert against([nan], 1.0).reason == "not finite: at [0] got nan, expected 1 +- 0.001"
    assert against([-inf], inf).reason == "not finite: at [0] got -inf, expected inf"
    assert against([3e38], inf).reason.startswith("value: at [0] got 3")
    assert not against([inf], nan).agrees
    assert not against([nan], inf).agrees
    assert against([inf], 1.0).error_ratio == inf


def test_a_value_beyond_the_largest_number_is_infinite() -> None:
    assert against([math.inf], 1e39).agrees
    assert not against([-math.inf], 1e39).agrees
    assert not against([65504.0], 70000.0, dtype="float16").agrees, "saturated"
    for output in (65504.0, math.inf):
        assert against([output], 65519.0, dtype="float16", limit=24.0).agrees, "either, next to the boundary"


def test_what_is_not_finite_in_the_truth_hides_no_other_error() -> None:
    value = torch.tensor([math.nan, 1.0, math.inf], dtype=torch.float64)
    limit = torch.tensor([math.nan, 1e-3, math.inf], dtype=torch.float64)
    truths = [check.Truth((slice(0, 3),), value, limit)]
    for output, agrees in (([math.nan, 1.0, math.inf], True), ([math.nan, 1.01, math.inf], False)):
        assert check.compare(torch.tensor(output), truths, shape=(3,), dtype="float32").agrees is agrees


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
def test_a_bound_that_is_not_a_number_fails_the_suite_not_the_kernel(limit: float) -> None:
    with pytest.raises(SuiteError, match="not a number"):
        against([5.0], 1.0, limit=limit)


def test_a_truth_must_cover_the_output() -> None:
    for truths in ([], pieces(1.0)):
        with pytest.raises(SuiteError, match="the output 2"):
            check.compare(torch.ones(2), truths, shape=(2,), dtype="float32")
    with pytest.raises(SuiteError, match="where the output has"):
        check.compare(torch.ones(1), pieces(1.0, 1.0), shape=(1,), dtype="float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_terms_only_zero_is_right(dtype: str) -> None:
    op = ops.get("matmul")
    case = op.case((2, 3, 0), dtype)
    output = torch.zeros(2, 3, dtype=getattr(torch, dtype))
    assert judge(op, case, output) == check.Verdict(True, 0.0, 0.0, 0.0)
    assert judge(op, case, -output).error_ratio == 0.0, "a zero of either sign"
    output[1, 1] = torch.finfo(output.dtype).smallest_normal * torch.finfo(output.dtype).eps
    assert output[1, 1] != 0
    assert not judge(op, case, output).agrees
    assert not against([1e-45], 0.0, limit=0.0).agrees


@pytest.mark.parametrize("name", ops.names())
def test_an_empty_output_agrees(name: str) -> None:
    op = ops.get(name)
    for shape in op.families["empty"].shapes:
        case = op.case(shape, inputs="empty")
        verdict = judge(op, case, torch.zeros(op.output_shape(case)))
        assert verdict == check.Verdict(True, 0.0, 0.0, 0.0)
        assert op.workspace_bytes(case) >= 0


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (torch.zeros(4, 2), "shape: the result is (4, 2), expected (2, 3)"),
        (torch.zeros(2, 3, dtype=torch.float64), "dtype: the result is float64, expected float32"),
        ([0.0, 0.0, 0.0], "type: the result is a list, not an array"),
        (torch.zeros(2, 3, device="meta"), "device: the result is on meta, expected cpu"),
        (torch.zeros(3, 2).T, "strides: the result has strides (1, 2), expected row-major without gaps"),
    ],
    ids=["shape", "dtype", "type", "device", "strides"],
)
def test_a_result_of_the_wrong_kind_is_wrong(output: torch.Tensor, reason: str) -> None:
    verdict = check.compare(output, [], shape=(2, 3), dtype="float32", device=CPU)
    assert not verdict.agrees
    assert verdict.error_ratio == math.inf
    assert verdict.reason == reason


@given(
    st.lists(
        st.tuples(st.floats(-(2.0**126), 2.0**126, width=32), st.floats(-2.0, 2.0), st.floats(1e-30, 1e3)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(("float32", "bfloat16")),
)
def test_an_ordinary_piece_is_judged_like_any_other(elements: list[tuple[float, float, float]], dtype: str) -> None:
    """Where all is finite nothing is looked at element by element, and the verdict is the same."""
    value, off, limit = torch.tensor(elements, dtype=torch.float64).T
    output = (value + off * limit).to(getattr(torch, dtype))
    truth = check.Truth((slice(0, len(elements)),), value, limit)
    assert check._ordinary(output, truth, dtype)
    found = check._judge(output, truth, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_ordinary", lambda *_: False)
        assert check._judge(output, truth, dtype) == found


@pytest.mark.parametrize(
    ("got", "expected", "limit"),
    [
        (math.nan, 1.0, 1e-3),
        (math.inf, 1.0, 1e-3),
        (1.0, math.nan, 1e-3),
        (1.0, -math.inf, 1e-3),
        (1.0, 1.0, math.nan),
        (1.0, 1.0, math.inf),
        (1.0, 1.0, 0.0),
        (3.4e38, 3.4e38, 1e36),
        (-3.4e38, -3.4e38, 1e36),
    ],
)
def test_what_is_not_ordinary(got: float, expected: float, limit: float) -> None:
    truth = check.Truth((slice(0, 2),), *(torch.tensor([x, y]).double() for x, y in ((0.5, expected), (1e-3, limit))))
    assert not check._ordinary(torch.tensor([0.5, got]), truth, "float32")
    assert check._ordinary(torch.tensor([0.5]), replace(truth, value=truth.value[:1], limit=truth.limit[:1]), "float32")


def test_the_reason_shows_the_worst_element_and_counts_the_others() -> None:
    verdict = against([1.0, 1.5, 2.0], 1.0, 1.0, 1.0)
    assert verdict.reason == "value: at [2] got 2, expected 1 +- 0.001; 2 of 3 are wrong"
    assert verdict.error_ratio == pytest.approx(1000.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vector_add", (2**15,)),
        ("sigmoid", (2**15,)),
        ("matrix_add", (256, 256)),
        ("matmul", (256, 256, 16)),
        ("matmul", (256, 256, 256)),
        ("attention", (1, 2, 1, 128, 256, 64)),
        ("attention", (1, 1, 1, 64, 64, 256)),
        ("attention", (1, 1, 1, 512, 32, 64)),
    ],
)
def test_judging_takes_no_more_memory_than_is_said(
    name: str, shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_draw, "BLOCK_ELEMENTS", 2**14)
    op = ops.get(name)
    for kind, precision in [(each, p) for each in (dtype, *op.dtypes_beyond) for p in op.precisions(each)]:
        case = op.case(shape, kind, precision, causal=True if op.causal else None)
        inputs = op.make_inputs(case, 0, CPU)
        output = torch.zeros(op.output_shape(case), dtype=getattr(torch, case.output_dtype))
        output.view(-1)[0] = math.nan  # then each element is looked at by itself, which takes the most
        with Allocations(*inputs, output) as made:
            check.compare(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.output_dtype)
        assert 0.4 * op.workspace_bytes(case) < made.peak <= op.workspace_bytes(case)


class Allocations(TorchDispatchMode):
    """Counts the bytes of the tensors that live at a time, those given aside."""

    def __init__(self, *aside: torch.Tensor) -> None:
        super().__init__()
        self.live = {tensor.untyped_storage()._cdata for tensor in aside}
        self.now = self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.live:
                storage = tensor.untyped_storage()
                self.live.add(key)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.free, key, storage.nbytes())
        return result

    def free(self, key: int, size: int) -> None:
        self.live.discard(key)
        self.now -= size


@settings(deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(1, 500))
def test_blocks_cover_every_element_once(shape: list[int], room: int) -> None:
    seen = torch.zeros(shape, dtype=torch.int32)
    original, _draw.BLOCK_ELEMENTS = _draw.BLOCK_ELEMENTS, room
    try:
        for index in _draw.blocks(tuple(shape)):
            assert seen[index].numel() <= room
            seen[index] += 1
    finally:
        _draw.BLOCK_ELEMENTS = original
    assert bool((seen == 1).all())
