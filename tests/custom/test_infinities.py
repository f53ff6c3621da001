"""Infinities and NaN inside a reference: they have no noise and widen no bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from custom_files import CPU, HEAD, operation

from suite.checking.judge import judge_together
from suite.custom.perturbed import Perturbed, unrounded
from suite.custom.perturbed_numpy import before_rounding, rounded
from suite.problem.truth import Truth

Function = Callable[..., torch.Tensor]

MASKED = (
    HEAD + "shapes = ['T=24']\ndef reference(s: Float[Tensor, 'T T'], v: Float[Tensor, 'T 8']):\n"
    "    hidden = torch.ones(s.shape, device=s.device).triu(1) > 0\n"
    "    return torch.softmax({masked}, 1) @ v\n"
)
MASKS = {
    "masked_fill": "s.masked_fill(hidden, float('-inf'))",
    "a sum": "s + torch.zeros_like(s).masked_fill_(hidden, float('-inf'))",
    "where": "torch.where(hidden, -torch.inf, s * 0.7)",
    "a logarithm": "s + torch.log(1.0 - hidden.to(s.dtype))",
    "written": "s.clone().index_put_((hidden,), torch.tensor(-torch.inf, dtype=s.dtype))",
}
QUOTIENT = (
    HEAD + "shapes = ['M=16,N=32']\ndef reference(x: Float[Tensor, 'M N']):\n"
    "    return torch.log(torch.relu(x)) + 1.0 / torch.relu(x - 0.5) + torch.rsqrt(x * 1.1 + 1.0)\n"
)


def masked(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = s.float().masked_fill(torch.ones(s.shape).triu(1) > 0, -torch.inf)
    e = torch.exp(s - s.amax(1, keepdim=True))
    return ((e / e.sum(1, keepdim=True)) @ v.float()).to(v.dtype)


@pytest.mark.parametrize(("mask", "dtype"), [*((mask, "float32") for mask in MASKS), ("a sum", "bfloat16")])
def test_a_mask_of_minus_infinity_is_seen(mask: str, dtype: str, tmp_path: Path) -> None:
    op = operation(tmp_path, MASKED.format(masked=MASKS[mask]))
    case = op.case((24,), dtype)
    s, v = inputs = op.make_inputs(case, 0, CPU)
    s = s * 0.7 if mask == "where" else s
    outputs = masked(s, v), torch.softmax(s, 1) @ v, torch.zeros_like(v)
    right, without, zeros = judge_together(outputs, op.truth(inputs, case), shape=tuple(v.shape), dtype=dtype)
    assert right.error_ratio < 0.9
    assert not without.agrees
    assert not zeros.agrees


def only_truth(tmp_path: Path, text: str, dtype: str) -> tuple[Truth, tuple[torch.Tensor, ...]]:
    op = operation(tmp_path, text)
    case = op.case(op.about.defaults[0], dtype)
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    return truth, inputs


def test_infinities_and_nan_must_be_where_the_truth_has_them(tmp_path: Path) -> None:
    op = operation(tmp_path, QUOTIENT)
    case = op.case((16, 32), "float32")
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    finite = truth.value.isfinite()
    assert truth.value.isnan().any()
    assert truth.value.isinf().any()
    assert finite.any()
    assert float((truth.limit / truth.value.abs())[finite].median()) < 1e-5
    right = op.program.function(case, torch.float32, CPU)(*inputs)
    wrong = right.nan_to_num(0.0), torch.where(right.isinf(), torch.nan, right), right.nan_to_num(torch.nan)
    found = judge_together([right, *wrong], [truth], shape=(16, 32), dtype="float32")
    assert [each.agrees for each in found] == [True, False, False, False]


def test_what_overflows_or_becomes_nan_in_a_run_widens_no_bound(tmp_path: Path) -> None:
    overflows = HEAD + "shapes = ['N=50']\ndef reference(x: Float[Tensor, 'N']):\n    return x * 3e4 * 9 / 1e4\n"
    truth, _ = only_truth(tmp_path, overflows, "float16")
    assert float(truth.limit.max()) < 1.0
    near_zero = (
        HEAD + "shapes = ['N=50']\ndef reference(x: Float[Tensor, 'N']):\n"
        "    return torch.sqrt(x * 1.1 - x * 1.1 * 1.0) + x\n"
    )
    truth, _ = only_truth(tmp_path, near_zero, "float32")
    assert float(truth.limit.max()) < 0.1


@pytest.mark.parametrize("amplification", [1.0, 8.0])
def test_noise_makes_no_finite_number_infinite(amplification: float) -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([1.0, -1.0, torch.inf, -torch.inf, torch.nan])
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), amplification, "ieee"):
        found = unrounded(x * largest * 0.9999999 + 0.1)
    assert torch.equal(found.isfinite(), x.isfinite())
    assert torch.equal(torch.sign(found[:4]), torch.sign(x[:4].double()))
    assert found[4].isnan()


def test_exact_results_beside_nan_stay_exact() -> None:
    x = torch.tensor([[1.5, torch.nan], [2.5, 3.5]])
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 8.0, "ieee"):
        found = unrounded(torch.relu(x) * 2.0)
    assert torch.equal(found.nan_to_num(0.0), torch.tensor([[3.0, 0.0], [5.0, 7.0]], dtype=torch.float64))


def test_numpys_infinities_have_no_noise() -> None:
    x = np.array([1.1, -np.inf, np.inf, np.nan])
    found = before_rounding(rounded(x, "float32", 8.0, np.random.default_rng(0)) * 1.3 + 0.7)
    assert found[1:3].tolist() == [-np.inf, np.inf]
    assert np.isnan(found[3])
    assert abs(found[0] - 2.13) < 1e-5
