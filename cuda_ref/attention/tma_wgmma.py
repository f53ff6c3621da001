"""Attention in CUDA on Hopper's tensor cores: adds TMA loads and wgmma products, one step after the other, to
tiles.py."""

from functools import partial

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import attend, launch

REQUIRES = "sm_90"
DETERMINISTIC = True


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes, masks, dtypes and errors: those of `attend` in cuda_ref/attention/_hopper.py.
    Devices: CUDA, compute capability 9.0.
    Source: see tma_wgmma.cu.
    """
    return attend(partial(launch, "attention/tma_wgmma"), q, k, v, causal, sm_scale)
