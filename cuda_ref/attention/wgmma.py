"""Attention in CUDA on Hopper's tensor cores: to TMA and wgmma it adds roles of warps, and the softmax of one block of
keys during the products of another."""

from functools import partial

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import attend, copied
from cuda_ref.attention._plan import PLANS, launch_planned, plan_for

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

    Shapes, masks, dtypes and errors: those of cuda_ref.attention._hopper.attend.
    Devices: CUDA, compute capability 9.0.
    Source: see wgmma.cu.
    """
    return attend(launch_planned, q, k, v, causal, sm_scale)


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The plan: queries of a tile, keys of a step, teams, as `wgmma 128x176 teams=1`; empty without queries or keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    return f"wgmma {PLANS[q.shape[3]][plan_for(q, k, causal)]}{copied(q, k, v)}"


def run(plan: int, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, sm_scale: float | None = None) -> Tensor:
    """`attention` by a plan, given by its number in PLANS of cuda_ref.attention._plan."""
    return attend(partial(launch_planned, plan=plan), q, k, v, causal, sm_scale)
