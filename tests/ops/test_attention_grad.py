"""attention_grad: its truth is that of autograd in float64; its bounds tell arithmetics apart."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, RIGHT

from suite import ops
from suite.checking.judge import judge
from suite.numerics.float8 import FLOAT8
from suite.numerics.formats import DTYPES
from suite.problem import blocks
from suite.problem.case import Case
from suite.problem.outputs import joined
from validation.arithmetic_models.float8 import aligned
from validation.arithmetic_models.rounding import rounded

OP = ops.get("attention_grad")
Tensors = tuple[torch.Tensor, ...]


def by_autograd(inputs: Tensors, case: Case) -> Tensors:
    """The gradients in float64, of queries that see a key; zeros of others."""
    q, k, v, do = (x.double() for x in inputs)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    group = case["H"] // case["H_kv"]
    scores = q @ k.repeat_interleave(group, 1).mT * OP.arguments(case).get("sm_scale", 1.0 / math.sqrt(case["D"]))
    if case.option("causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(case["S_k"] - case["S_q"])
        scores = scores.masked_fill(~seen, torch.finfo(torch.float64).min)
        scores = scores[:, :, max(0, case["S_q"] - case["S_k"]) :]
    o = torch.softmax(scores, -1) @ v.repeat_interleave(group, 1)
    return torch.autograd.grad(o, (q, k, v), do[:, :, case["S_q"] - o.shape[2] :])


def truth(inputs: Tensors, case: Case, what: str = "value") -> torch.Tensor:
    value = torch.full(OP.output_shape(case), math.nan, dtype=torch.float64)
    for piece in OP.truth(inputs, case):
        value[piece.index] = getattr(piece, what)
    return value


def ratio(outputs: Tensors, inputs: Tensors, case: Case) -> float:
    dtype = OP.output_dtype(case)
    output = joined([x.to(getattr(torch, dtype)) for x in outputs])
    return judge(output, OP.truth(inputs, case), shape=OP.output_shape(case), dtype=dtype).error_ratio


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(2, 4, 2, 9, 14, 64), (1, 2, 1, 14, 9, 64), (1, 1, 1, 1, 1, 64)], ids=str)
@pytest.mark.parametrize("family", ["normal", "sm_scale", "large_logits"])
def test_the_truth_is_that_of_autograd(shape: tuple[int, ...], causal: bool, family: str) -> None:
    case = OP.case(shape, causal=causal, inputs=family)
    inputs = OP.make_inputs(case, 0, CPU)
    expected = joined(by_autograd(inputs, case))
    torch.testing.assert_close(truth(inputs, case), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", ["normal", "nan"])
def test_rows_at_a_time_have_the_truth_of_all(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    case = OP.case((1, 4, 2, 60, 90, 64), "bfloat16", causal=True, inputs=family)
    inputs = OP.make_inputs(case, 0, CPU)
    value, limit = truth(inputs, case), truth(inputs, case, "limit")
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 2**12)  # 11 queries: hidden keys are left out
    torch.testing.assert_close(truth(inputs, case), value, rtol=1e-10, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(truth(inputs, case, "limit"), limit, rtol=1e-10, atol=0.0, equal_nan=True)


def flash(inputs: Tensors, case: Case, kind: str, *, of_products: str = "") -> Tensors:
    """The gradients as fused kernels compute them: o, p and ds are rounded to `kind`, all else is exact.

    of_products: a type that the operands of all products are rounded to first.
    """
    to = lambda x: torch.from_numpy(rounded(x.numpy(), kind))  # noqa: E731
    core = (lambda x: torch.from_numpy(rounded(x.numpy(), of_products))) if of_products else (lambda x: x)
    q, k, v, do = (core(x.double()) for x in inputs)
    scale = 1.0 / math.sqrt(case["D"])
    p = torch.softmax(q @ k.mT * scale, -1)
    delta = (do * to(core(to(p)) @ v)).sum(-1, keepdim=True)
    ds = core(to(p * (do @ v.mT - delta)))
    return ds @ k * scale, ds.mT @ q * scale, core(to(p)).mT @ do


@pytest.mark.parametrize("family", ["normal", "large_logits"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_roundings_of_fused_kernels_agree(dtype: str, family: str) -> None:
    for shape in ((1, 2, 2, 64, 512, 64), (1, 1, 1, 256, 16, 128)):
        case = OP.case(shape, dtype, inputs=family)
        inputs = OP.make_inputs(case, 1, CPU)
        assert ratio(flash(inputs, case, dtype), inputs, case) < RIGHT


@pytest.mark.parametrize("keys", [16, 1024])
@pytest.mark.parametrize(
    ("dtype", "kind", "of_products"),
    [("float32", "float32", "tf32"), ("float32", "bfloat16", ""), ("float16", "bfloat16", "")],
    ids=["tf32_products", "fp32_by_bf16", "fp16_by_bf16"],
)
def test_a_coarser_arithmetic_is_refused(dtype: str, kind: str, of_products: str, keys: int) -> None:
    case = OP.case((1, 1, 1, 64, keys, 64), dtype)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(flash(inputs, case, kind, of_products=of_products), inputs, case) > 1.0


def to_float8(x: torch.Tensor, largest: torch.Tensor | float) -> torch.Tensor:
    """x after its rounding to float8, with a factor that makes `largest` 256."""
    factor = 256.0 / largest
    return torch.from_numpy(rounded((x * factor).numpy(), FLOAT8)) / factor


def float8(
    inputs: Tensors, case: Case, *, depth: int = 0, own: bool = False, results: bool = False, mistake: str = ""
) -> Tensors:
    """The gradients of one head as kernels on float8 tensor cores compute them: o, p and ds are rounded to float8.

    depth: products that a tensor core adds in one step; 0 for exact sums. own: ds has the factor that its own largest
    number gives, otherwise the one that the longest rows of v and do give. results: these are rounded to float8 too.
    """
    q, k, v, do = (x[0, 0].double() for x in inputs[:4])
    scale_q, scale_k, scale_v, scale_do = (torch.ones_like(x) if mistake == i else x for i, x in enumerate(inputs[4:]))
    add = aligned(depth) if depth else lambda a, b: a @ b
    product = lambda a, b: torch.from_numpy(add(a.numpy(), b.numpy()))  # noqa: E731
    scale = case["D"] ** -0.5
    s = product(q, k.mT) * (scale * scale_q * scale_k)
    if case.option("causal"):
        s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(case["S_k"] - case["S_q"]), -math.inf)
    weights = torch.exp(s - s.amax(-1, keepdim=True))
    total = weights.sum(-1, keepdim=True)
    o = to_float8(product(to_float8(weights, 1.0), v) / total, v.abs().amax())
    dp, p = product(do, v.mT), weights / total
    ds = p * (dp if mistake == "delta left out" else dp - (o * do).sum(-1, keepdim=True))
    limit = v.norm(dim=-1).amax() * do.norm(dim=-1).amax() / 2.0
    ds = to_float8(ds, ds.abs().amax() if own else limit)
    p = to_float8(p, 256.0 if mistake == "p without a factor" else 1.0)
    values = scale_v * scale_do
    of_keys = scale_k if mistake == "dk by the scale of k" else scale_q
    dq, dk = product(ds, k) * (scale * scale_k * values), product(ds.mT, q) * (scale * of_keys * values)
    found = dq, dk, product(p.mT, do) * scale_do
    return tuple(to_float8(x, x.abs().amax()) for x in found) if results else found


ONE_HEAD = pytest.mark.parametrize(
    ("shape", "causal"),
    [((16, 16, 64), False), ((130, 130, 128), True), ((64, 512, 64), False), ((512, 64, 64), False)],
)


@ONE_HEAD
def test_the_roundings_of_float8_kernels_agree(shape: tuple[int, int, int], causal: bool) -> None:
    case = OP.case((1, 1, 1, *shape), FLOAT8, causal=causal)
    inputs = OP.make_inputs(case, 1, CPU)
    for kernel in ({"depth": 16}, {"depth": 32, "own": True}, {"results": True}, {"own": True, "results": True}):
        assert ratio(float8(inputs, case, **kernel), inputs, case) < 0.3, kernel


@ONE_HEAD
@pytest.mark.parametrize("mistake", [0, 1, 2, 3, "delta left out", "dk by the scale of k"])
def test_wrong_float8_kernels_are_refused(mistake: str | int, shape: tuple[int, int, int], causal: bool) -> None:
    """The numbers are places of scales that are forgotten."""
    case = OP.case((1, 1, 1, *shape), FLOAT8, causal=causal)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(float8(inputs, case, mistake=mistake), inputs, case) > 1.5


def test_float8_weights_of_many_keys_need_a_factor() -> None:
    case = OP.case((1, 1, 1, 64, 512, 64), FLOAT8)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(float8(inputs, case, mistake="p without a factor"), inputs, case) > 1.5


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_scales_of_float8_are_those_of_its_operands(causal: bool) -> None:
    case = OP.case((2, 4, 2, 9, 14, 64), FLOAT8, causal=causal)
    inputs = OP.make_inputs(case, 0, CPU)
    assert [(x.dtype, tuple(x.shape)) for x in inputs[4:]] == 4 * [(torch.float32, ())]
    scaled = tuple(x.double() * scale.double() for x, scale in zip(inputs[:4], inputs[4:], strict=True))
    torch.testing.assert_close(truth(inputs, case), joined(by_autograd(scaled, case)), rtol=1e-10, atol=1e-12)


def test_queries_and_keys_without_each_other_have_no_gradient() -> None:
    case = OP.case((1, 1, 1, 5, 3, 64), causal=True)
    inputs = OP.make_inputs(case, 0, CPU)
    value = truth(inputs, case)
    assert torch.equal(value[: 2 * 64], torch.zeros(128, dtype=torch.float64))
    assert bool((value[2 * 64 + 64 : 5 * 64] != 0).all()), "the first query that sees a key has a softmax of one"


def test_nan_in_one_head_stays_there() -> None:
    case = OP.case((1, 4, 2, 6, 9, 64), causal=True)
    inputs = OP.make_inputs(case, 0, CPU)
    inputs[0][0, 1, 5, 3] = math.nan
    nan = truth(inputs, case).isnan()
    dq, dk, dv = (each.view(-1, 64) for each in nan.split([4 * 6 * 64, 2 * 9 * 64, 2 * 9 * 64]))
    assert dq.all(1).nonzero().flatten().tolist() == [11]
    assert not dq.any(1)[[*range(11), *range(12, 24)]].any()
    for each in (dk, dv):
        assert each[:9].all()
        assert not each[9:].any()


def test_flops_are_three_and_a_half_times_those_of_attention() -> None:
    for causal in (False, True):
        shape = (2, 4, 2, 33, 40, 64)
        forward = ops.get("attention").flops(ops.get("attention").case(shape, causal=causal))
        assert OP.flops(OP.case(shape, causal=causal)) == 3.5 * forward


def test_numbers_below_the_normal_range_may_be_flushed_after_they_are_scaled() -> None:
    """XLA on a CPU flushes ds times the scale: 1/8 of the smallest normal number counts times a query of 48."""
    case = OP.case(OP.families["large_logits"].shapes[0], causal=True, inputs="large_logits")
    inputs = OP.make_inputs(case, 17, CPU)
    q, k, v, do = (x.double() for x in inputs)
    scale = 1.0 / math.sqrt(case["D"])
    seen = torch.ones(case["S_q"], case["S_k"], dtype=torch.bool).tril(case["S_k"] - case["S_q"])
    p = torch.softmax((q @ k.mT * scale).masked_fill(~seen, -math.inf), -1)
    dp = do @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    ds[ds.abs() < 2.0**-126] = 0.0
    dk, dv = ((each.mT @ x).sum(1, keepdim=True) for each, x in ((ds, q), (p, do)))
    assert ratio((ds @ k, dk, dv), inputs, case) < RIGHT


def test_equal_operands_have_equal_errors() -> None:
    """All pairs have one error: in dp rounded to 16 bits, which a difference from exact numbers does not cancel."""
    case = OP.case(OP.usual_shape, "bfloat16", inputs="repeated")
    inputs = OP.make_inputs(case, 10, CPU)
    q, k, v, do = (x.double() for x in inputs)
    group, scale = case["H"] // case["H_kv"], 1.0 / math.sqrt(case["D"])
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    p = torch.softmax(q @ k.mT * scale, -1)
    o = (p @ v).to(inputs[0].dtype).double()
    ds = p * ((do @ v.mT).to(inputs[0].dtype).double() - (do * o).sum(-1, keepdim=True))
    rounded_p, rounded_ds = (x.to(inputs[0].dtype).double() for x in (p, ds))
    dk, dv = (
        (each.mT @ x).unflatten(1, (case["H_kv"], group)).sum(2)
        for each, x in ((rounded_ds * scale, q), (rounded_p, do))
    )
    assert ratio((rounded_ds @ k * scale, dk, dv), inputs, case) < RIGHT
