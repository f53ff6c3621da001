"""The gradients of attention by cuDNN in float8: its factors, with cuDNN's definition in place of its kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from jax._src.cudnn import fused_attention_stablehlo  # noqa: E402
from jax._src.cudnn.fused_attention_stablehlo import (  # noqa: E402
    check_fp8_params,
    fp8_params_keys_bwd,
    params_from_keys,
)

from jax_impls.attention_grad import cudnn  # noqa: E402
from suite import frameworks, ops  # noqa: E402
from suite.checking.judge import judge  # noqa: E402
from suite.problem.outputs import joined  # noqa: E402

FLOAT8 = "float8_e4m3fn"
READ_BY_XLA = (
    *("descale_q", "descale_k", "descale_v", "descale_s", "descale_o", "descale_dO", "descale_dP"),
    *("scale_s", "scale_dP", "scale_dQ", "scale_dK", "scale_dV"),
)
"""The factors of the backward kernel in the order of XLA's graph. JAX's is `fp8_params_keys_bwd`."""


def product(text: str, *operands: Any) -> Any:
    return jnp.einsum(text, *(x.astype(jnp.float32) for x in operands))


def scores(q: Any, k: Any, p: dict[str, Any], scale: float, causal: bool) -> Any:
    s = product("bhqd,bhkd->bhqk", q, k) * (scale * p["descale_q"] * p["descale_k"])
    return jnp.where(jnp.tri(*s.shape[2:], dtype=bool), s, -jnp.inf) if causal else s


def forward(q: Any, k: Any, v: Any, p: Any, scale: float, causal: bool, layout: int, version: int) -> tuple[Any, Any]:
    """The output in float8 and the logarithms of the sums, of as many key heads as query heads."""
    check_fp8_params(p)
    assert {each.shape for each in p.values()} == {(1, 1, 1, 1)}
    s = scores(q, k, p, scale, causal)
    lse = jax.nn.logsumexp(s, -1)
    o = product("bhqk,bhkd->bhqd", jnp.exp(s - lse[..., None]), v) * p["descale_v"]
    o8 = (o * p["scale_o"]).astype(q.dtype)
    return (o8, None, None), (q, k, v, lse, o8, params_from_keys(p, fp8_params_keys_bwd))


def backward(
    scale: float, causal: bool, layout: int, version: int, kept: tuple[Any, ...], given: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The gradients in float8, and the largest numbers before their rounding, of which scale ds is called dP."""
    q, k, v, lse, o8, listed = kept
    p = dict(zip(READ_BY_XLA, listed, strict=True))
    (do,) = given
    weights = jnp.exp(scores(q, k, p, scale, causal) - lse[..., None])
    dp = product("bhqd,bhkd->bhqk", do, v) * (p["descale_dO"] * p["descale_v"])
    delta = (o8.astype(jnp.float32) * do.astype(jnp.float32)).sum(-1, keepdims=True)
    ds = scale * weights * (dp - delta * (p["descale_o"] * p["descale_dO"]))
    ds8, p8 = (ds * p["scale_dP"]).astype(q.dtype), (weights * p["scale_s"]).astype(q.dtype)
    dq = product("bhqk,bhkd->bhqd", ds8, k) * (p["descale_dP"] * p["descale_k"])
    dk = product("bhqk,bhqd->bhkd", ds8, q) * (p["descale_dP"] * p["descale_q"])
    dv = product("bhqk,bhqd->bhkd", p8, do) * (p["descale_s"] * p["descale_dO"])
    found = {"dQ": dq, "dK": dk, "dV": dv}
    codes = [(x * p[f"scale_{name}"]).astype(q.dtype) for name, x in found.items()]
    return *codes, {f"amax_{name}": jnp.abs(x).max() for name, x in (found | {"dP": ds}).items()}


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91300)


def operands(shape: tuple[int, ...], causal: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
    op = ops.get("attention_grad")
    case = op.case(shape, FLOAT8, causal=causal)
    return case, op.make_inputs(case, 1, torch.device("cpu"))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_factors_give_the_definition(on_gpu: None, monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(cudnn, "_dot_product_attention_fp8_fwd_rule", forward)
    monkeypatch.setattr(cudnn, "_dot_product_attention_fp8_bwd_rule", backward)
    op, adapter = ops.get("attention_grad"), frameworks.get("jax")
    case, inputs = operands((1, 2, 2, 256, 256, 128), causal)
    found = cudnn.attention_grad.__wrapped__(*map(adapter.to_native, inputs), causal=causal)
    out = joined([adapter.to_torch(each) for each in found])
    assert out.dtype == torch.bfloat16
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.error_ratio < 0.5, verdict.reason


def test_factors_are_those_of_both_orders() -> None:
    """A JAX that passes the factors in the order of XLA needs no translation."""
    read = dict(zip(fp8_params_keys_bwd, READ_BY_XLA, strict=True))
    assert {slot: name for slot, name in read.items() if slot != name} == cudnn.READ_AS


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(1, 2, 2, 256, 256, 128), (2, 8, 2, 1024, 1024, 128)], ids=str)
def test_it_agrees_on_a_gpu(shape: tuple[int, ...], causal: bool) -> None:
    op, adapter, device = ops.get("attention_grad"), frameworks.get("jax"), torch.device("cuda")
    case = op.case(shape, FLOAT8, causal=causal)
    inputs = op.make_inputs(case, 1, device)
    found = cudnn.attention_grad(*map(adapter.to_native, inputs), causal=causal)
    out = joined([adapter.to_torch(each).to(device) for each in found])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.error_ratio < 0.7, verdict.reason


def test_it_is_three_calls_of_cudnn(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's own functions take these arguments, and make the program for a GPU."""
    monkeypatch.setattr(fused_attention_stablehlo, "is_cuda_compute_capability_equal", lambda _: False)
    q, k, scale = jnp.zeros((2, 4, 256, 128), FLOAT8), jnp.zeros((2, 2, 256, 128), FLOAT8), jnp.float32(0.5)
    function = jax.jit(partial(cudnn.attention_grad.__wrapped__, causal=True))
    traced = function.trace(q, k, k, q, scale, scale, scale, scale)
    assert [(x.shape, str(x.dtype)) for x in traced.out_info] == [(x.shape, "bfloat16") for x in (q, k, k)]
    lines = traced.lower(lowering_platforms=("cuda",)).as_text().splitlines()
    calls = [line for line in lines if "custom_call" in line]
    assert ["BackwardF8" in call for call in calls] == [False, True, True]
    assert all("@__cudnn$fmhaSoftmax" in call for call in calls)
    assert all("CAUSAL" in call for call in calls)


def test_rows_say_what_differs() -> None:
    q = jnp.zeros((1, 1, 4, 64), FLOAT8)
    assert cudnn.config(q, q, q, q, causal=True).startswith("gradients rounded to float8_e4m3fn; backward kernel twice")
    assert cudnn.config(q.astype(jnp.bfloat16)) == ""


@pytest.mark.parametrize(
    ("shape", "options", "reason"),
    [
        ((1, 1, 1, 128, 128, 64), {}, "D=128 and S_q and S_k as multiples of 128; got D=64"),
        ((1, 1, 1, 100, 128, 128), {}, "got D=128, S_q=100"),
        ((1, 1, 1, 128, 256, 128), {"causal": True}, "masks are none and causal.* S_q=128, S_k=256"),
        ((1, 1, 1, 128, 128, 128), {"causal": True, "window": 5}, "window=5"),
    ],
)
def test_other_cases_are_unsupported(
    on_gpu: None, shape: tuple[int, ...], options: dict[str, Any], reason: str
) -> None:
    _, inputs = operands(shape, False)
    native = map(frameworks.get("jax").to_native, inputs)
    with pytest.raises(NotImplementedError, match=reason):
        cudnn.attention_grad.__wrapped__(*native, **options)
