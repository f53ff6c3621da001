"""Attention by cuDNN in float8: the factors that it is given, with cuDNN's definition in place of its kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from jax._src.cudnn import fused_attention_stablehlo  # noqa: E402
from jax._src.cudnn.fused_attention_stablehlo import MaskType, check_fp8_params  # noqa: E402

from jax_impls.attention import cudnn  # noqa: E402
from suite import frameworks, ops  # noqa: E402
from suite.checking.judge import judge  # noqa: E402

FLOAT8 = "float8_e4m3fn"


def fused(q: Any, k: Any, v: Any, *, fp8_params: Any, scale: float, mask_type: MaskType, **_: Any) -> tuple[Any, ...]:
    """The output of cuDNN's float8 kernel, in float8: a causal mask begins at the first key."""
    check_fp8_params(fp8_params)
    assert {each.shape for each in fp8_params.values()} == {(1, 1, 1, 1)}
    p = fp8_params
    k, v = (jnp.repeat(x.astype(jnp.float32), q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = jnp.einsum("bhqd,bhkd->bhqk", q.astype(jnp.float32), k) * (scale * p["descale_q"] * p["descale_k"])
    if mask_type == MaskType.CAUSAL:
        s = jnp.where(jnp.tri(s.shape[2], s.shape[3], dtype=bool), s, -jnp.inf)
    weights = jnp.exp(s - s.max(-1, keepdims=True))
    codes = (weights * p["scale_s"]).astype(q.dtype).astype(jnp.float32)
    o = jnp.einsum("bhqk,bhkd->bhqd", codes, v) * (p["descale_s"] * p["descale_v"]) / weights.sum(-1, keepdims=True)
    return (o * p["scale_o"]).astype(q.dtype), jnp.max(weights), jnp.max(o)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(cudnn, "dot_product_attention", fused)


def operands(shape: tuple[int, ...], causal: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
    op = ops.get("attention")
    case = op.case(shape, FLOAT8, causal=causal)
    return case, op.make_inputs(case, 1, torch.device("cpu"))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(2, 4, 2, 60, 60, 64), (1, 2, 1, 90, 40, 64)], ids=str)
def test_factors_and_masks_give_the_definition(on_gpu: None, shape: tuple[int, ...], causal: bool) -> None:
    op, adapter = ops.get("attention"), frameworks.get("jax")
    case, inputs = operands(shape, causal)
    out = adapter.to_torch(cudnn.attention.__wrapped__(*map(adapter.to_native, inputs), causal=causal))
    assert out.dtype == torch.bfloat16
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason


def test_it_is_one_call_of_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's own function takes these arguments, and makes the program for a GPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91300)
    monkeypatch.setattr(fused_attention_stablehlo, "is_cuda_compute_capability_equal", lambda _: False)
    q, k, scale = jnp.zeros((2, 4, 256, 128), FLOAT8), jnp.zeros((2, 2, 256, 128), FLOAT8), jnp.float32(0.5)
    function = jax.jit(partial(cudnn.attention.__wrapped__, causal=True))
    program = function.trace(q, k, k, scale, scale, scale).lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in program.splitlines() if "custom_call" in line]
    assert len(calls) == 1
    assert "@__cudnn$fmhaSoftmaxF8" in calls[0]
    assert "CAUSAL" in calls[0]


def test_rows_say_that_the_output_is_rounded() -> None:
    q = jnp.zeros((1, 1, 4, 64), FLOAT8)
    assert cudnn.config(q, q, q, causal=True) == "output rounded to float8_e4m3fn"
    assert cudnn.config(q.astype(jnp.bfloat16)) == ""


@pytest.mark.parametrize(
    ("shape", "options", "reason"),
    [
        ((1, 1, 1, 40, 60, 64), {"causal": True}, "masks are none and causal.* S_q=40, S_k=60"),
        ((1, 1, 1, 60, 60, 64), {"causal": True, "window": 5}, "window=5"),
        ((1, 1, 1, 60, 60, 72), {}, "a multiple of 16; got D=72"),
        ((1, 1, 1, 1, 60, 64), {"causal": True}, "for one query"),
        ((1, 1, 1, 60, 1, 64), {"causal": True}, "for one query"),
    ],
)
def test_what_cudnn_lacks_is_unsupported(
    on_gpu: None, shape: tuple[int, ...], options: dict[str, Any], reason: str
) -> None:
    _, inputs = operands(shape, False)
    native = map(frameworks.get("jax").to_native, inputs)
    with pytest.raises(NotImplementedError, match=reason):
        cudnn.attention.__wrapped__(*native, **options)
