"""Attention in CUDA on Hopper's tensor cores: TMA, specialized warps, softmax under the products."""

from functools import partial

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import attend
from cuda_ref.attention._plan import launch_planned

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

    Shapes, masks, dtypes, devices and errors: those of cuda_ref.attention._hopper.attend.
    Few queries, at most 16: the keys of a head are divided among blocks, by _decode.cu; all query heads of a
    key head read it once.
    Source: see wgmma.cu.
    """
    return attend(launch_planned, q, k, v, causal, sm_scale, decodes=True)


def run(plan: int, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, sm_scale: float | None = None) -> Tensor:
    """`attention` by a plan, by its number in PLANS of cuda_ref.attention._plan, however few queries there are."""
    return attend(partial(launch_planned, plan=plan), q, k, v, causal, sm_scale)
