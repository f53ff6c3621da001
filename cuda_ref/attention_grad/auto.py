"""The gradients of attention in CUDA: `float8` for float8, otherwise `wgmma`."""

from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_attention_grad
from cuda_ref._runtime.kept import kept
from cuda_ref.attention_grad import float8, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]
Scale = Float[Tensor, ""]


def choose(q: Tensor) -> ModuleType:
    """The module whose kernels `attention_grad` runs."""
    return float8 if q.dtype == torch.float8_e4m3fn else wgmma


@kept
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
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes, masks, dtypes, memory and errors: those of wgmma.py; float8 and its scales as in float8.py.
    Devices: CUDA, compute capability 9.0.
    """
    scales = scale_q, scale_k, scale_v, scale_do
    check_attention_grad(q, k, v, do, scales)
    given = scales if q.dtype == torch.float8_e4m3fn else ()
    gradients: tuple[Tensor, Tensor, Tensor] = choose(q).attention_grad(
        q, k, v, do, *given, causal=causal, sm_scale=sm_scale
    )
    return gradients


def config(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels and their plans, as in wgmma.py and float8.py; empty without queries or keys."""
    text: str = choose(q).config(q, k, v, do, *scales, causal=causal, sm_scale=sm_scale)
    return text
