"""Statistics over many results: errors of all of them are refused long before one result exceeds its bound."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from judging import CPU, RIGHT

from suite import ops
from suite.checking.check import judge_draw
from suite.checking.judge import Verdict, judge
from suite.checking.problem import Problem
from suite.implementations import builtin
from suite.numerics.bounds import limit
from suite.numerics.formats import max_finite, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import distinct
from suite.problem.truth import Truth
from validation.sensitivity import honest_results

COUNT = 2**14
U = unit_roundoff("float32")


def verdict(
    error: torch.Tensor, *, deviation: float = 20 * U, systematic: float = 0.0, independent: int = COUNT
) -> Verdict:
    """Judge numbers from 1 to 2 with a relative error, whose deviation is stated to be `deviation`."""
    value = 1.0 + torch.rand(COUNT, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    noise = Noise(value * systematic, (value * deviation).square(), independent)
    truth = Truth((slice(0, COUNT),), value, limit(value * (systematic + 8 * deviation), value, "float32"), noise)
    return judge((value * (1.0 + error)).float(), [truth], shape=(COUNT,), dtype="float32")


def normal(deviation: float, count: int = COUNT, seed: int = 2) -> torch.Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * deviation


@pytest.mark.parametrize("seed", range(20))
def test_errors_of_the_stated_deviation_are_right(seed: int) -> None:
    found = verdict(normal(20 * U, seed=seed).clamp(-100 * U, 100 * U))
    assert found.agrees, found.reason
    assert found.error_ratio < RIGHT


@pytest.mark.parametrize("seed", range(20))
def test_errors_that_are_equal_in_groups_are_right_where_that_is_stated(seed: int) -> None:
    found = verdict(normal(20 * U, count=16, seed=seed).repeat_interleave(COUNT // 16), independent=16)
    assert found.agrees, found.reason
    assert found.error_ratio < RIGHT


def test_a_common_factor_is_refused_below_the_bound_of_one_element() -> None:
    assert verdict(torch.full((COUNT,), 3 * U, dtype=torch.float64)).reason.startswith("scale: all are 1.8e-07")
    assert verdict(torch.full((COUNT,), -3 * U, dtype=torch.float64)).reason.startswith("scale: all are 1.8e-07")
    assert verdict(torch.full((COUNT,), 3 * U, dtype=torch.float64), systematic=4 * U).agrees
    assert verdict(torch.full((COUNT,), 3 * U, dtype=torch.float64), independent=16).agrees


def test_one_more_rounding_is_refused_below_the_bound_of_one_element() -> None:
    found = verdict(normal(35 * U).clamp(-100 * U, 100 * U))
    assert found.reason.startswith("spread: the root mean square error is")
    assert 1.0 < found.error_ratio < 2.0


def test_an_offset_of_numbers_of_both_signs_shows_in_their_mean() -> None:
    value = normal(1.0)
    noise = Noise(
        torch.zeros(COUNT, dtype=torch.float64), torch.full((COUNT,), (20 * U) ** 2, dtype=torch.float64), COUNT
    )
    truth = Truth((slice(0, COUNT),), value, torch.full((COUNT,), 200 * U, dtype=torch.float64), noise)
    found = judge((value + 5 * U).float(), [truth], shape=(COUNT,), dtype="float32")
    assert found.reason.startswith("mean: all are 0.2")


def test_each_result_of_a_tuple_has_statistics_of_its_own() -> None:
    op = ops.get("attention_grad")
    problem = Problem(op.case((1, 2, 1, 64, 64, 64), "bfloat16"), 0, CPU)
    value = torch.empty(problem.output_shape, dtype=torch.float64)
    for truth in problem.truth(0):
        value[truth.index] = truth.value
    assert judge_draw(value.bfloat16(), problem, 0).agrees
    _, start, end = (begin for _, begin in problem.results)
    value[start:end] *= 1.01
    assert judge_draw(value.bfloat16(), problem, 0).reason.startswith("scale of dk: all are 0.0")


@pytest.mark.parametrize("name", ["sum", "softmax", "rms_norm", "layer_norm", "matmul", "sigmoid"])
def test_a_type_of_fewer_bits_in_between_is_refused_in_16_bits(name: str) -> None:
    """A rounding to float16 in front of the rounding to bfloat16 changes some results by one ulp, and no more."""
    op = ops.get(name)
    shape = {"sigmoid": (20_000,), "matmul": (128, 128, 64)}.get(name, (160, 264))
    options = {"axis": "1"} if name == "sum" else {}
    problem = Problem(op.case((4000, 16) if name == "sum" else shape, "bfloat16", **options), 0, CPU)
    value = torch.cat([truth.value for truth in problem.truth(0)])
    assert judge_draw(value.bfloat16(), problem, 0).agrees
    noisy = value * (1.0 + normal(2.0**-12, value.numel()).view(value.shape))
    found = judge_draw(noisy.bfloat16(), problem, 0)
    assert not found.agrees
    assert found.reason.startswith("spread: "), found.reason


def test_the_results_of_equal_inputs_count_once() -> None:
    value = torch.tensor([1.0 + 1.49 * 2.0**-8], dtype=torch.float64).expand(1000)
    noise = Noise(*torch.full((2, 1000), 1e-6, dtype=torch.float64), 1000)
    truth = Truth((slice(0, 1000),), value, torch.full((1000,), 1.0, dtype=torch.float64), noise)
    assert judge(value.bfloat16() + 2.0**-7, [truth], shape=(1000,), dtype="bfloat16").agrees
    apart = dataclasses.replace(truth, value=value + torch.arange(1000) * 1e-9)
    assert not judge(value.bfloat16() + 2.0**-7, [apart], shape=(1000,), dtype="bfloat16").agrees


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (2**10, 2**10), (3, 2**20), (300, 1021, 2)])
def test_a_sample_lies_in_all_columns(shape: tuple[int, ...]) -> None:
    at = sample(shape, CPU)
    count = math.prod(shape)
    assert len(at) == len(shape)
    if shape and count:
        assert min(count, 2**15) <= len(at[0]) <= 2**17
        assert len(at[-1].unique()) >= min(shape[-1], len(at[-1]) // shape[0])


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.thorough)])
def test_the_stated_error_covers_roundings_of_4096_squares_that_do_not_cancel(dtype: str) -> None:
    """As in a warp that computes a row of 131,072 elements, each lane of which adds every 32nd square."""
    op = ops.get("rms_norm")
    case = op.case((2048, 4096), dtype)
    inputs = op.make_inputs(case, 3, CPU)
    x = inputs[0].float()
    sums = torch.zeros(len(x), 1)
    for column in x.square().split(1, dim=1):  # exact: squares of 11 bits
        sums += column
    true = x.double().square().sum(dim=1, keepdim=True)
    drift = abs(float(((sums - true) / true).mean())) / 2.0
    assert drift > 8 * U, "the roundings do not cancel"
    for truth in op.truth(inputs, case):
        assert truth.noise is not None
        sizes = truth.value[sample(tuple(truth.value.shape), truth.value.device)].abs()
        assert torch.all(truth.noise.systematic >= sizes * drift)


@pytest.mark.parametrize(
    ("name", "inputs", "options", "dtype", "seed"),
    [
        ("linear_sigmoid_grad", "dense/repeated0/repeated0/repeated1", {}, "float16", 18),
        ("multi_head_attention", "repeated1/repeated0/repeated1", {"causal": True}, "bfloat16", 4),
    ],
)
def test_equal_rows_count_as_one_error(name: str, inputs: str, options: dict[str, bool], dtype: str, seed: int) -> None:
    op = ops.get(name)
    case = op.case(op.usual_shape, dtype, inputs=inputs, **options)
    line = builtin.find(name, "torch")
    (found,) = honest_results([line], case, seed)
    assert found.reason == ""


def test_rows_are_distinct_if_one_operand_differs() -> None:
    x, y = torch.randn(2, 50, 8).bfloat16(), torch.ones(2, 50, 3)
    assert distinct(x) == distinct(x, y) == 100
    assert distinct(x[:1].expand(2, 50, 8)) == 50
    assert distinct(y, x[:, :1].expand(2, 50, 8)) == 2
    assert distinct(y) == 1
    assert distinct(x[:0]) == 0


def test_an_output_after_others_of_the_same_truth_has_the_verdict_that_it_has_alone() -> None:
    """The truth keeps the sums that right results share. An infinity, right near the largest number, has its own."""
    value = 1.0 + torch.rand(COUNT, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    value[::2] = max_finite("float32")
    deviation = value * 20 * U
    noise = Noise(torch.zeros_like(value), deviation.square(), COUNT)

    def truth() -> Truth:
        return Truth((slice(0, COUNT),), value, limit(8 * deviation, value, "float32"), noise)

    outputs = [(value * (1.0 + normal(size * U).clamp(-100 * U, 100 * U))).float() for size in (20, 35, 1)]
    assert outputs[0].isinf().any()
    outputs.append((value * (1.0 - 3 * U)).float())
    kept = truth()
    found = [judge(each, [kept], shape=(COUNT,), dtype="float32") for each in outputs]
    assert found == [judge(each, [truth()], shape=(COUNT,), dtype="float32") for each in outputs]
    assert [each.agrees for each in found] == [True, False, True, False]
