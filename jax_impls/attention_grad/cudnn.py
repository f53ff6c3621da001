"""The gradients of attention by cuDNN's fused kernels, through JAX."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.cudnn.fused_attention_stablehlo import (  # the public function has no float8
    AttentionLayout,
    _dot_product_attention_fp8_bwd_rule,
    _dot_product_attention_fp8_fwd_rule,
    check_cudnn_version,
    fp8_params_keys_bwd,
)
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention_grad, check_window
from jax_impls.attention.cudnn import attention, check_limits, float8_parameters

VENDOR = "cuDNN through JAX"
REQUIRES = "cuda"
DTYPES_BEYOND = ("float8_e4m3fn",)
OPTIONS_BEYOND = ("window",)
FILLED = 256.0
"""Largest number of a float8 tensor after its scaling. float8_e4m3fn reaches 448."""
LEAST = 2.0**-100
"""The smallest number that a scale is divided by: that of a tensor of zeros."""
READ_AS = {
    "descale_o": "descale_s",
    "descale_dO": "descale_o",
    "descale_s": "descale_dO",
    "scale_dQ": "scale_dP",
    "scale_dK": "scale_dQ",
    "scale_dV": "scale_dK",
    "scale_dP": "scale_dV",
}
"""The factor that XLA takes for each name under which JAX passes one to the backward kernel: JAX's lowering
(`_dot_product_attention_fp8_bwd_cuda_lowering`) and XLA's graph (`GetCudnnFlashAttentionBackwardF8OperationGraph`) have
the factors in two orders, in jax 0.11.2."""

Queries = Float[Array, "B H S_q D"]
Keys = Float[Array, "B H_kv S_k D"]
Scale = Float[Array, ""]


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    Dtypes, shapes, `causal`, `sm_scale` and `window` are those of attention/cudnn.py. A query that sees no key has
    gradient 0.

    float8_e4m3fn: q, k, v and do are each multiplied by a scale, and the gradients of the scaled operands are bfloat16.
    D is 128, S_q and S_k are multiples of 128; masks are cuDNN's own, causal with S_q = S_k. cuDNN rounds o, p,
    sm_scale ds and the gradients to float8, with factors that it must be given. The factors of the gradients
    follow from the gradients' largest numbers, which cuDNN's backward kernel returns: it runs twice, first for these
    numbers. `config` names both differences from the other implementations.

    Raises ValueError for other shapes and dtypes, NotImplementedError for float32, other D, or without a GPU, and for
    other shapes and masks in float8.
    """
    check_attention_grad(q, k, v, do, (scale_q, scale_k, scale_v, scale_do))
    if scale_q is None or scale_k is None or scale_v is None or scale_do is None:
        _, gradients = jax.vjp(partial(attention, causal=causal, sm_scale=sm_scale, window=window), q, k, v)
        dq, dk, dv = gradients(do)
        return dq, dk, dv
    check_limits(q)
    check_float8(q, k, causal, check_window("attention_grad", window, causal, k.shape[2]))
    if q.size == 0 or k.size == 0:
        return tuple(jnp.zeros(x.shape, jnp.bfloat16) for x in (q, k, v))  # type: ignore[return-value]
    scale = 1.0 / math.sqrt(q.shape[3]) if sm_scale is None else sm_scale
    given = scale, causal, AttentionLayout.BNTH.value, check_cudnn_version()
    parameters = float8_parameters(scale_q, scale_k) | factors("dP", FILLED / (abs(scale) * largest_ds(v, do)))
    _, kept = _dot_product_attention_fp8_fwd_rule(q, k, v, parameters, *given)
    *of_forward, _ = kept

    def backward(parameters: dict[str, jax.Array]) -> tuple[Any, ...]:
        given_again = *of_forward, [parameters[READ_AS.get(key, key)] for key in fp8_params_keys_bwd]
        found: tuple[Any, ...] = _dot_product_attention_fp8_bwd_rule(*given, given_again, (do,))
        return found

    *_, found = backward(parameters)
    for name in ("dP", "dQ", "dK", "dV"):
        parameters |= factors(name, FILLED / jnp.maximum(found[f"amax_{name}"], LEAST))
    *codes, _ = backward(parameters)
    values = scale_v * scale_do  # cuDNN does not multiply by these
    dq, dk, dv = (
        (x.astype(jnp.float32) * (factor / parameters[f"scale_{name}"])).astype(jnp.bfloat16)
        for x, name, factor in zip(codes, ("dQ", "dK", "dV"), (values, values, scale_do), strict=True)
    )
    return dq, dk, dv


def config(q: jax.Array, *_: jax.Array, **options: object) -> str:
    """The differences from the definition and from the other implementations in float8. Otherwise empty."""
    if q.dtype != jnp.float8_e4m3fn:
        return ""
    return "gradients rounded to float8_e4m3fn; backward kernel twice, first for their largest numbers"


def factors(name: str, scale: jax.Array) -> dict[str, jax.Array]:
    """cuDNN's factor of a tensor before its rounding to float8; that of dP, which is sm_scale ds, has an inverse."""
    scale = jnp.reshape(scale, (1, 1, 1, 1))
    return {f"scale_{name}": scale} | ({"descale_dP": 1.0 / scale} if name == "dP" else {})


def largest_ds(v: jax.Array, do: jax.Array) -> jax.Array:
    """A limit of |ds|: p (1 - p) <= 1/4, times twice the product of the longest rows of v and do."""
    longest = (jnp.sqrt(jnp.square(x.astype(jnp.float32)).sum(-1).max()) for x in (v, do))
    return jnp.maximum(math.prod(longest) / 2.0, LEAST)


def check_float8(q: jax.Array, k: jax.Array, causal: bool, near: int) -> None:
    """Raises NotImplementedError for shapes and masks that cuDNN's float8 kernels do not cover in training."""
    (S_q, D), S_k = q.shape[2:], k.shape[2]
    if D != 128 or S_q % 128 or S_k % 128:
        raise NotImplementedError(
            "attention_grad: in float8, cuDNN takes D=128 and S_q and S_k as multiples of 128; "
            f"got D={D}, S_q={S_q}, S_k={S_k}"
        )
    if near or (causal and S_q != S_k):
        raise NotImplementedError(
            "attention_grad: in float8, cuDNN's masks are none and causal from the first key on; "
            f"got causal={causal} with S_q={S_q}, S_k={S_k}, window={near or None}"
        )
