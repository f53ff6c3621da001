"""Attention in CUDA on Hopper's tensor cores: adds specialized warps to tma_wgmma.py, and a softmax that runs during
the products of another block of keys."""

from functools import partial

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_attention, check_window
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import attend, copied
from cuda_ref.attention._plan import PLANS, launch_planned, plan_for

REQUIRES = "sm_90"
DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)
MOST_WITH_WINDOW = 128
"""Largest D for which wgmma.cu has windows."""


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes, masks, dtypes and errors: those of `attend` in cuda_ref/attention/_hopper.py.
    Window: query i sees only that many keys, up to its own, with D 64 or 128. Steps before the first window of a tile
    are left out; only the steps in which some windows begin, and those on the diagonal, apply a mask.
    Devices: CUDA, compute capability 9.0.
    Source: see wgmma.cu.
    """
    check_attention(q, k, v)
    return attend(partial(launch_planned, window=_window(q, k, window, causal)), q, k, v, causal, sm_scale)


def _window(q: Tensor, k: Tensor, window: int | None, causal: bool) -> int:
    near = check_window("attention", window, causal, k.shape[2])
    if near and q.shape[3] > MOST_WITH_WINDOW:
        raise NotImplementedError(f"attention: with a window D must be 64 or 128; got D={q.shape[3]}")
    return near


def config(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None, window: int | None = None
) -> str:
    """The plan: queries per tile, keys per step, teams, as in `wgmma 128x176 teams=1`; empty without queries or
    keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    return f"wgmma {PLANS[q.shape[3]][plan_for(q, k, causal)]}{copied(q, k, v)}"


def run(
    plan: int, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, sm_scale: float | None = None, window: int = 0
) -> Tensor:
    """`attention` by the plan with this index in PLANS of _plan.py."""
    return attend(partial(launch_planned, plan=plan, window=window), q, k, v, causal, sm_scale)
