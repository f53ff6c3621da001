"""Choosers name the kernels that they run, and an implementation with the name of a kernel runs no other."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from cuda_ref import build
from cuda_ref.linear_sigmoid import auto as linear_sigmoid_auto
from cuda_ref.linear_sigmoid_grad import auto as linear_sigmoid_grad_auto
from cuda_ref.linear_sigmoid_grad import wgmma as linear_sigmoid_grad_wgmma
from cuda_ref.lstm import persistent
from cuda_ref.matmul import _model, _model_tf32_float8, _plan, auto, mma, stream, wgmma
from cuda_ref.matmul._rates import Rates, scaled
from cuda_ref.matmul._tiles import KERNELS, WGMMA, Plan, Problem, candidates, described
from cuda_ref.multi_head_attention import auto as multi_head_attention_auto

SHAPES = list(itertools.product((1, 20, 300, 5000), (1, 8, 24, 1000), (5, 64, 4096)))


def kernel_names() -> str:
    """The text of all .cu and .cuh of matmul from each `__global__` to the parenthesis of its arguments."""
    texts = [each.read_text() for each in (build.HERE / "matmul").glob("*.cu*")]
    return "\n".join(found for text in texts for found in re.findall(r"__global__[^;{]*?(matmul_\w+)\(", text))


def problems() -> list[Problem]:
    return [Problem(*shape, False, False, 132, a_dense=True) for shape in SHAPES]


def test_a_plan_is_described_by_a_word_of_its_kernel() -> None:
    names = kernel_names()
    plans = {plan for x in problems() for plan in candidates(x)}
    for kernel, few in (("wgmma32", True), ("wgmma8", False)):
        for M, N, K in SHAPES:
            plans |= set(_model_tf32_float8.candidates(_model_tf32_float8.Problem(kernel, M, N, K, 0, 132, few)))
    assert {plan.kernel for plan in plans} == {*KERNELS, *WGMMA, "few32", "skinny8", "short8"}
    for plan in plans:
        assert described(plan).split()[0] in names, plan


@pytest.mark.parametrize(
    ("plan", "copied", "text"),
    [
        (Plan("wgmma", 1, 4), {"b": True}, "wgmma 128x256 cluster=2 parts=4 (b copied)"),
        (Plan("wgmma16", 3, 1), {"a": True, "b": True}, "wgmma 64x64 (a and b copied)"),
        (Plan("fitted", 96 * 16 + 3 * 4 + 3, 1), {"a": False}, "fitted 96x192 cluster=4"),
        (Plan("mma", 1, 2), {}, "mma 64x16 parts=2"),
        (Plan("stream", 3, 2), {}, "stream warps=8 parts=2"),
        (Plan("skinny8", 0, 3), {}, "skinny columns=128 parts=3"),
        (Plan("short", 10, 1), {}, "short threads=128"),
        (Plan("short", 6, 1), {}, "short grid=4x4"),
        (Plan("short", 9, 1), {}, "short tile=64x64"),
        (Plan("narrow", 2, 1), {}, "narrow rows=8"),
        (Plan("few32", 0, 2), {}, "few32 parts=2"),
    ],
)
def test_descriptions(plan: Plan, copied: dict[str, bool], text: str) -> None:
    assert described(plan, **copied) == text


def test_wgmma_has_a_plan_of_its_own_for_every_shape() -> None:
    for x in problems():
        assert _plan.best_of(x, WGMMA).kernel in WGMMA
    for kernel, shape in itertools.product(("wgmma32", "wgmma8"), SHAPES):
        assert _model_tf32_float8.best_of(_model_tf32_float8.Problem(kernel, *shape, 0, 132), WGMMA).kernel == kernel


def test_operands_that_are_copied() -> None:
    odd, even = torch.zeros(24, 13, dtype=torch.bfloat16), torch.zeros(16, 24, dtype=torch.bfloat16)
    assert wgmma.config(odd.t(), odd) == "wgmma 64x128 (a and b copied)"
    assert wgmma.config(even, odd) == "wgmma 64x128 (b copied)"
    assert wgmma.config(even, even.t()) == "wgmma 64x128"
    assert auto.config(even, odd[:0]) == ""
    assert mma.config(odd.t()[::2, ::2], odd[::2, ::2]) == "mma 32x32 (a and b copied)"
    assert stream.config(odd.t()[::2, ::2], odd[::2, :3]) == "stream warps=1 (a copied)"


def test_layers_name_their_steps() -> None:
    x = torch.zeros(40, 64, dtype=torch.bfloat16)
    weight, bias = torch.zeros(24, 64, dtype=torch.bfloat16), torch.zeros(24, dtype=torch.bfloat16)
    dy = torch.zeros(40, 24, dtype=torch.bfloat16)
    assert linear_sigmoid_auto.config(x, weight, bias) == "wgmma 64x128"
    for module in (linear_sigmoid_grad_auto, linear_sigmoid_grad_wgmma):
        steps = module.config(x, weight, bias, dy).split("; ")
        assert [each.split()[0] for each in steps] == ["wgmma", "add_rows", "wgmma", "wgmma"]
    y = torch.zeros(2, 20, 64, dtype=torch.bfloat16)
    w_qkv, w_out = torch.zeros(192, 64, dtype=torch.bfloat16), torch.zeros(64, 64, dtype=torch.bfloat16)
    assert multi_head_attention_auto.config(y, w_qkv, w_out, heads=1) == "wgmma 64x128; attention_wgmma; wgmma 64x128"
    h = torch.zeros(8, 16, dtype=torch.bfloat16)
    given = (torch.zeros(3, 8, 16), torch.zeros(64, 16), torch.zeros(64, 16), torch.zeros(64), h.float(), h.float())
    assert persistent.config(*given) == "matmul; lstm_words"
    assert persistent.config(*(each.bfloat16() for each in given)) == "matmul; lstm_mma"


def test_constants_of_another_device() -> None:
    """Rates follow the device's memory and clock; latencies stay."""
    found = scaled(_model.H200, Rates("another", clock=0.5, dram=0.7))
    assert found.dram_bytes_per_us == 0.7 * _model.H200.dram_bytes_per_us
    assert found.sm_l2_bytes_per_us == 0.5 * _model.H200.sm_l2_bytes_per_us
    assert found.copy_us == _model.H200.copy_us
    assert _model.costs_of(None) == _model.costs_of(Rates()) == _model.H200
    assert set(_model_tf32_float8.costs_of(Rates("another"))) == {"wgmma32", "wgmma8"}
