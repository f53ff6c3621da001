"""Attention by cuDNN's fused kernel, through the private function behind `jax.nn.dot_product_attention`."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax._src.cudnn.fused_attention_stablehlo import MaskType, dot_product_attention  # the public one takes only BTNH
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention, check_window
from jax_impls.attention import visible

VENDOR = "cuDNN through JAX"
REQUIRES = "cuda"
OPTIONS_BEYOND = ("window",)


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention(
    q: Float[Array, "B H S_q D"],
    k: Float[Array, "B H_kv S_k D"],
    v: Float[Array, "B H_kv S_k D"],
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

    Raises ValueError for other shapes and dtypes, NotImplementedError for float32, other D, or without a GPU.
    """
    check_attention(q, k, v)
    check_limits(q)
    S_q, S_k = q.shape[2], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if q.size == 0 or S_k == 0:
        return jnp.zeros(q.shape, q.dtype)
    blind = max(0, S_q - S_k) if causal else 0  # number of first queries, which see no key
    rectangle = causal and S_q < S_k and (S_q > 1 or near > 0)
    o = dot_product_attention(
        q[:, :, blind:],
        k,
        v,
        mask=visible(S_q, S_k, near)[None, None] if rectangle else None,
        scale=1.0 / math.sqrt(q.shape[3]) if sm_scale is None else sm_scale,
        mask_type=MaskType.CAUSAL if causal and S_q >= S_k else MaskType.NO_MASK,
        qkv_layout="BNTH",
        sliding_window_length=near if near and not rectangle else None,
    )
    return jnp.pad(o, ((0, 0), (0, 0), (blind, 0), (0, 0)))


def check_limits(q: jax.Array) -> None:
    """Raises NotImplementedError for dtypes, D and devices that cuDNN's kernel does not cover."""
    D = q.shape[3]
    if q.dtype == jnp.float32:
        raise NotImplementedError("attention: cuDNN's fused kernel takes float16 and bfloat16; got float32")
    if D > 256 or D % 8:
        raise NotImplementedError(f"attention: cuDNN's fused kernel takes D up to 256 and a multiple of 8; got D={D}")
    if jax.default_backend() != "gpu":
        raise NotImplementedError(f"attention: cuDNN needs an NVIDIA GPU; JAX runs on {jax.default_backend()}")
