"""Attention in CUDA: `float8` for float8, `decode` for a few queries, otherwise `wgmma`."""

from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_attention
from cuda_ref._runtime.kept import kept
from cuda_ref.attention import decode, float8, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


def choose(q: Tensor) -> ModuleType:
    """The module whose kernel `attention` runs.

    For float8 there is only one. In 16 bits `decode` divides the keys among blocks. It is chosen for so few queries
    that the time is that of reading the keys.
    """
    if q.dtype == torch.float8_e4m3fn:
        return float8
    return decode if q.dim() == 4 and q.shape[2] <= decode.MOST_QUERIES else wgmma


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    scale_q: Float[Tensor, ""] | None = None,
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes, masks, dtypes and errors: those of `attend` in cuda_ref/attention/_hopper.py; float8 and its scales as in
    float8.py.
    Devices: CUDA, compute capability 9.0.
    """
    scales = scale_q, scale_k, scale_v
    check_attention(q, k, v, scales)
    given = scales if q.dtype == torch.float8_e4m3fn else ()
    out: Tensor = choose(q).attention(q, k, v, *given, causal=causal, sm_scale=sm_scale)
    return out


def config(
    q: Tensor, k: Tensor, v: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernel and its plan, as `decode parts=3` or `wgmma 128x176 teams=1`; empty without queries or keys."""
    text: str = choose(q).config(q, k, v, *scales, causal=causal, sm_scale=sm_scale)
    return text
