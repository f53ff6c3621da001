"""Attention in CUDA: `decode` for a few queries, otherwise `wgmma`."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.attention import decode, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True


def choose(q: Tensor) -> str:
    """Chooses `decode` for so few queries that reading the keys takes the time; it divides the keys among blocks."""
    return "decode" if q.dim() == 4 and q.shape[2] <= decode.MOST_QUERIES else "wgmma"


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
    """
    kernel = decode if choose(q) == "decode" else wgmma
    return kernel.attention(q, k, v, causal=causal, sm_scale=sm_scale)


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernel and its plan, as `decode parts=3` or `wgmma 128x176 teams=1`; empty without queries or keys."""
    kernel = decode if choose(q) == "decode" else wgmma
    return kernel.config(q, k, v, causal=causal, sm_scale=sm_scale)
