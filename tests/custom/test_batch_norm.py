"""Batch norm in stochastic arithmetic: in one step it errs as its simpler operations do."""

from __future__ import annotations

import math

import pytest
import torch
from torch._decomp import get_decompositions

from suite.custom import batch_norm
from suite.custom.perturbed import Perturbed, unrounded

aten = torch.ops.aten
SIMPLER = get_decompositions([aten.native_batch_norm])[aten.native_batch_norm.default]
RUNS = 24


def drawn(dtype: torch.dtype, mean: float, shape: tuple[int, ...] = (8, 6, 5, 7)) -> list[torch.Tensor]:
    """x, weight, bias, running mean and running variance. Half of the channels have results near 0: bias cancels."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=source) + mean
    weight, bias, running = (torch.randn(shape[1], generator=source) for _ in range(3))
    bias[::2] *= 0.01
    return [each.to(dtype) for each in (x, weight, bias, running + mean, torch.rand(shape[1], generator=source) + 0.5)]


def exact(tensors: list[torch.Tensor], training: bool) -> list[torch.Tensor]:
    wide = [each.double() for each in tensors]
    y = aten.native_batch_norm(*wide, training, 0.1, 1e-5)[0]
    return [y, *wide[3:]]


def errors(function: object, tensors: list[torch.Tensor], training: bool) -> list[float]:
    """The root mean square errors of y and of the running values, over several runs."""
    source, right, squares = torch.Generator().manual_seed(1), exact(tensors, training), [0.0] * 3
    for _ in range(RUNS):
        given = [each.clone() for each in tensors]
        with torch.no_grad(), Perturbed(source, 1.0, "ieee"):
            found = [function(*given, training, 0.1, 1e-5)[0], *given[3:]]  # type: ignore[operator]
            found = [unrounded(each) for each in found]
        for i, (mine, other) in enumerate(zip(found, right, strict=True)):
            squares[i] += float((mine - other).square().mean()) / RUNS
    return [math.sqrt(each) for each in squares]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mean", [0.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_step_errs_as_the_simpler_operations(dtype: torch.dtype, mean: float, training: bool) -> None:
    tensors = drawn(dtype, mean)
    mine, simpler = (errors(each, tensors, training) for each in (aten.native_batch_norm, SIMPLER))
    assert simpler[0] / 1.5 < mine[0] < 1.5 * simpler[0]
    if training and dtype is torch.float32:
        assert simpler[1] / 2.0 < mine[1] < 2.0 * simpler[1]
        assert simpler[2] / 2.0 < mine[2] < 2.0 * simpler[2]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5, 6), (1, 3, 2, 2)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_modules_have_the_results_of_torch(shape: tuple[int, ...], training: bool, affine: bool) -> None:
    kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
    modules = [kind[len(shape)](3, affine=affine).train(training) for _ in range(2)]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 1.0, "ieee"):
        found = modules[0](x.clone())
    torch.testing.assert_close(found, modules[1](x))
    for name, value in modules[1].named_buffers():
        torch.testing.assert_close(modules[0].get_buffer(name), value)


def test_each_form_is_computed_in_one_step() -> None:
    x, weight, bias, mean, variance = drawn(torch.float32, 0.0)
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 1.0, "ieee"):
        found = [
            aten.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5),
            aten._native_batch_norm_legit(x, weight, bias, mean, variance, False, 0.1, 1e-5),
            aten._native_batch_norm_legit_no_training(x, weight, bias, mean, variance, 0.1, 1e-5),
            aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5),
        ]
    assert len(found) == len(batch_norm.FORMS)
    right = aten.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5)[0]
    for y, saved_mean, saved in found[:3]:
        torch.testing.assert_close(y, right)
        assert saved_mean.numel() == saved.numel() == 0
    for mine, other in zip(
        found[3], aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5), strict=True
    ):
        torch.testing.assert_close(mine, other)


def test_infinities_and_nan_have_no_error() -> None:
    x, weight, bias, mean, variance = drawn(torch.float32, 0.0)
    x[0, 0, 0, 0], x[0, 1, 0, 0] = math.inf, math.nan
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 8.0, "ieee"):
        y = aten.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5)[0]
    right = aten.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5)[0]
    torch.testing.assert_close(y, right, equal_nan=True, rtol=1e-4, atol=1e-5)
    assert int(y.isfinite().logical_not().sum()) == 2
