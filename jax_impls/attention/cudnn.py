"""Attention by cuDNN's fused kernel, through the private function behind `jax.nn.dot_product_attention`."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax._src.cudnn.fused_attention_stablehlo import (  # the public function takes only BTNH and no float8
    MaskType,
    dot_product_attention,
    fp8_params_keys,
)
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention, check_window
from jax_impls.attention import visible

VENDOR = "cuDNN through JAX"
REQUIRES = "cuda"
DTYPES_BEYOND = ("float8_e4m3fn",)
OPTIONS_BEYOND = ("window",)
WEIGHT_SCALE = 256.0
"""Scale of the float8 weights exp(score - maximum), which are at most 1. float8_e4m3fn reaches 448."""


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention(
    q: Float[Array, "B H S_q D"],
    k: Float[Array, "B H_kv S_k D"],
    v: Float[Array, "B H_kv S_k D"],
    scale_q: Float[Array, ""] | None = None,
    scale_k: Float[Array, ""] | None = None,
    scale_v: Float[Array, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Array, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: float16 and bfloat16 with float32 scores, softmax and sums. H is a multiple of H_kv; D is a multiple of 8,
    up to 256 on Hopper and 128 before. JAX's public function takes (B, S, H, D), so the transposes around it would be
    four copies on the device; the function behind it also takes (B, H, S, D). XLA copies operands that are in memory in
    another order. `sm_scale` defaults to 1 / sqrt(D).

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. cuDNN aligns its
    mask to the first key instead. Its mask is used if both agree: for S_q = S_k, and for the last S_k queries if S_q >
    S_k (earlier queries see nothing). A single query sees every key, without a mask. For 1 < S_q < S_k the mask is
    explicit, and cuDNN adds it to the scores. `window` is cuDNN's sliding window where its causal mask is used, and
    part of the explicit mask otherwise.

    float8_e4m3fn: q, k and v are each multiplied by a scale, and the output is bfloat16. D is a multiple of 16; masks
    are cuDNN's own. cuDNN rounds the weights to float8, and its output too, which XLA then multiplies by scale_v and
    converts. The other implementations round the output to bfloat16 only. `config` names this difference.

    Raises ValueError for other shapes and dtypes, NotImplementedError for float32, other D, float8 with an explicit
    mask, a window or one query that sees keys, or without a GPU.
    """
    scales = scale_q, scale_k, scale_v
    check_attention(q, k, v, scales)
    check_limits(q)
    S_q, S_k = q.shape[2], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if q.size == 0 or S_k == 0:
        return jnp.zeros(q.shape, q.dtype if scale_q is None else jnp.bfloat16)
    blind = max(0, S_q - S_k) if causal else 0  # number of first queries, which see no key
    rectangle = causal and S_q < S_k and (S_q > 1 or near > 0)
    attend = partial(
        dot_product_attention,
        q[:, :, blind:],
        k,
        v,
        scale=1.0 / math.sqrt(q.shape[3]) if sm_scale is None else sm_scale,
        mask_type=MaskType.CAUSAL if causal and S_q >= S_k else MaskType.NO_MASK,
        qkv_layout="BNTH",
    )
    if scale_q is not None and scale_k is not None and scale_v is not None:
        if S_q - blind == 1:
            raise NotImplementedError("attention: cuDNN has no float8 kernel for one query")
        if rectangle or near:
            raise NotImplementedError(
                "attention: in float8, cuDNN's masks are none and causal from the first key on; "
                f"got causal with S_q={S_q}, S_k={S_k}, window={window}"
            )
        o8, _, _ = attend(fp8_params=float8_parameters(scale_q, scale_k), use_fp8=True)
        o = (o8.astype(jnp.float32) * scale_v).astype(jnp.bfloat16)
    else:
        o = attend(
            mask=visible(S_q, S_k, near)[None, None] if rectangle else None,
            sliding_window_length=near if near and not rectangle else None,
        )
    return jnp.pad(o, ((0, 0), (0, 0), (blind, 0), (0, 0)))


def float8_parameters(scale_q: jax.Array, scale_k: jax.Array) -> dict[str, jax.Array]:
    """Returns cuDNN's factors for q, k and the weights. v and the output keep the factor 1, so that the output
    cannot overflow. The factors of gradients are not used."""
    given = {
        "descale_q": scale_q,
        "descale_k": scale_k,
        "scale_s": jnp.float32(WEIGHT_SCALE),
        "descale_s": jnp.float32(1.0 / WEIGHT_SCALE),
    }
    return {key: jnp.reshape(given.get(key, jnp.float32(1.0)), (1, 1, 1, 1)) for key in fp8_params_keys}


def config(q: jax.Array, *_: jax.Array, **options: object) -> str:
    """The difference from the definition: in float8, the type to which the output is rounded. Otherwise empty."""
    return "output rounded to float8_e4m3fn" if q.dtype == jnp.float8_e4m3fn else ""


def check_limits(q: jax.Array) -> None:
    """Raises NotImplementedError for dtypes, D and devices that cuDNN's kernel does not cover."""
    D = q.shape[3]
    if q.dtype == jnp.float32:
        raise NotImplementedError("attention: cuDNN's fused kernel takes float16 and bfloat16; got float32")
    multiple = 16 if q.dtype == jnp.float8_e4m3fn else 8
    if D > 256 or D % multiple:
        raise NotImplementedError(
            f"attention: cuDNN's fused kernel takes D up to 256 and a multiple of {multiple}; got D={D}"
        )
    if jax.default_backend() != "gpu":
        raise NotImplementedError(f"attention: cuDNN needs an NVIDIA GPU; JAX runs on {jax.default_backend()}")
