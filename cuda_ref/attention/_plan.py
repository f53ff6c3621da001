"""Plans of attention/wgmma.cuh, and the choice of one from the sizes of a call.

On the 56 timed cases with D 64 and 128 (H200) the chosen plan takes 1.004 times as long as the best one in the
geometric mean, and 1.047 times in the worst case: results/nvidia-h200/proof/attention_plans.csv,
docs/lab/cuda_attention.md.
"""

from dataclasses import dataclass

from torch import Tensor

from cuda_ref._runtime.device import multiprocessors
from cuda_ref.attention._hopper import launch


@dataclass(frozen=True)
class Plan:
    """The division of the work of a launch. A team of warpgroups computes one tile at a time."""

    BLOCK_M: int
    """Queries of a tile."""
    BLOCK_N: int
    """Keys of a step."""
    teams: int = 1
    """Teams per multiprocessor. They do not wait for each other."""

    def __str__(self) -> str:
        return f"{self.BLOCK_M}x{self.BLOCK_N} teams={self.teams}"


PLANS = {
    64: (Plan(192, 128), Plan(64, 128, teams=3)),
    128: (Plan(128, 128), Plan(128, 176)),
    256: (Plan(128, 64),),
}
"""Plans by D, in the order of launch_head in wgmma.cuh."""
LONG_KEYS = 2048
"""Number of keys from which the steps of a tile hide its first loads, first softmax and store."""
FULL_WAVES = 1.5
"""Tiles per multiprocessor from which large tiles keep all multiprocessors busy."""


def cdiv(size: int, by: int) -> int:
    """size / by, rounded up."""
    return -(-size // by)


def choose(D: int, causal: bool, S_q: int, S_k: int, heads: int, processors: int) -> int:
    """The index of the plan in PLANS[D]. heads: query heads of all batch entries. processors: multiprocessors.

    D = 64: for long rows and many tiles one team with large tiles, which read keys least often; otherwise three teams,
    so that one multiplies while another loads or stores. D = 128: steps of 176 keys if they pad the keys no more than
    steps of 128. Under a causal mask the first steps of a tile apply the mask, and short steps waste less.
    """
    if D == 64:
        tiles = heads * cdiv(S_q, PLANS[64][0].BLOCK_M)
        return 0 if S_k >= LONG_KEYS and tiles >= FULL_WAVES * processors else 1
    if D == 128 and not causal:
        short, long = (cdiv(S_k, plan.BLOCK_N) * plan.BLOCK_N for plan in PLANS[128])
        return 1 if long <= short else 0
    return 0


def plan_for(q: Tensor, k: Tensor, causal: bool) -> int:
    """The choice for q (B, H, S_q, D) and k (B, H_kv, S_k, D)."""
    B, H, S_q, D = q.shape
    return choose(D, causal, S_q, k.shape[2], B * H, multiprocessors(q.device))


def launch_planned(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    causal: bool,
    scale_log2: float,
    plan: int | None = None,
    window: int = 0,
) -> None:
    """`launch` of _hopper.py for wgmma.cu, with the given plan or, by default, the chosen one. window: 0 for none."""
    chosen = plan_for(q, k, causal) if plan is None else plan
    launch("attention/wgmma", q, k, v, out, causal, scale_log2, chosen, window)
