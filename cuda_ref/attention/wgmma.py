"""Attention in CUDA on Hopper's tensor cores: adds specialized warps to tma_wgmma.py, and a softmax that runs during
the products of another block of keys."""

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

    Shapes, masks, dtypes and errors: those of `attend` in cuda_ref/attention/_hopper.py.
    Devices: CUDA, compute capability 9.0.
    Source: see wgmma.cu.
    """
    return attend(launch_planned, q, k, v, causal, sm_scale)


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The plan: queries per tile, keys per step, teams, as in `wgmma 128x176 teams=1`; empty without queries or
    keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    return f"wgmma {PLANS[q.shape[3]][plan_for(q, k, causal)]}{copied(q, k, v)}"


def run(plan: int, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, sm_scale: float | None = None) -> Tensor:
    """`attention` by the plan with this index in PLANS of _plan.py."""
    return attend(partial(launch_planned, plan=plan), q, k, v, causal, sm_scale)
