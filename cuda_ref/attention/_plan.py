"""Plans of wgmma.cu: queries and keys of a step, and teams of warpgroups that compute different tiles.

The choice is that of a model of few constants (docs/lab/cuda_attention.md). A tile takes the time of its steps, and one
for its first loads, first softmax and store. The teams of a multiprocessor hide that second part under each other's
products, and have fewer queries each, which takes more steps.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from cuda_ref.attention._hopper import launch
from cuda_ref.matmul._plan import multiprocessors


@dataclass(frozen=True)
class Plan:
    """How a launch divides the work. Times are those of a multiprocessor with a tile for each of its teams."""

    BLOCK_M: int
    """Queries of a tile."""
    BLOCK_N: int
    """Keys of a step."""
    step_us: float
    tile_us: float
    """Of a tile beyond its steps."""
    causal_us: float
    """Of a tile with a causal mask beyond its steps: its first steps apply the mask."""
    teams: int = 1
    """Of a multiprocessor."""
    alone: float = 1.0
    """Time of a tile alone on its multiprocessor, as a share of that beside those of other teams."""


class Problem(NamedTuple):
    """What the choice depends on."""

    D: int
    causal: bool
    S_q: int
    S_k: int
    heads: int
    """Of queries, of all batch entries."""
    multiprocessors: int


# Of an H200, less what plans have in common. D=64: fitted to sequences that are in no table; `alone` is an estimate.
PLANS = {
    64: (
        Plan(192, 128, step_us=1.37, tile_us=0.52, causal_us=0.52),
        Plan(64, 128, step_us=1.5, tile_us=0.2, causal_us=0.54, teams=3, alone=0.6),
    ),
    128: (
        Plan(128, 128, step_us=1.43, tile_us=2.86, causal_us=3.4),
        Plan(128, 176, step_us=1.92, tile_us=2.86, causal_us=3.5),
    ),
    256: (Plan(128, 64, step_us=1.0, tile_us=1.0, causal_us=1.0),),  # the only one, so its times do not matter
}
"""By D, in the order of launch_head in wgmma.cu."""


def tile_steps(plan: Plan, x: Problem) -> list[int]:
    """Steps of the tiles of a head. Tiles whose queries see no key are not computed."""
    rows = -(-x.S_q // plan.BLOCK_M)
    if not x.causal:
        return [-(-x.S_k // plan.BLOCK_N)] * rows
    later = x.S_k - x.S_q
    ends = (min((row + 1) * plan.BLOCK_M, x.S_q) + later for row in range(max(-later, 0) // plan.BLOCK_M, rows))
    return [max(-(-end // plan.BLOCK_N), 1) for end in ends]


def predicted_us(plan: Plan, x: Problem) -> float:
    """Time of a launch, without what all plans have in common.

    Without a mask all tiles take as long, and the last ones leave multiprocessors or teams idle. The schedule of a
    causal mask balances long tiles and short ones.
    """
    steps = tile_steps(plan, x)
    tiles = x.heads * len(steps)
    if x.causal:
        mean = plan.causal_us + sum(steps) / len(steps) * plan.step_us
        longest = plan.causal_us + steps[-1] * plan.step_us
        return max(tiles * mean / (x.multiprocessors * plan.teams), plan.alone * longest)
    most = -(-tiles // x.multiprocessors)  # of a multiprocessor
    turns = max(most / plan.teams, (most - 1) // plan.teams + plan.alone)
    return turns * (plan.tile_us + steps[0] * plan.step_us)


@lru_cache(maxsize=4096)
def best(x: Problem) -> int:
    """Number of the plan with the least predicted time."""
    plans = PLANS[x.D]
    return min(range(len(plans)), key=lambda number: predicted_us(plans[number], x))


def plan_for(q: Tensor, k: Tensor, causal: bool) -> int:
    """The model's choice for q (B, H, S_q, D) and k (B, H_kv, S_k, D)."""
    B, H, S_q, D = q.shape
    return best(Problem(D, causal, S_q, k.shape[2], B * H, multiprocessors(q.device) if q.is_cuda else 1))


def launch_planned(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, scale_log2: float, plan: int | None = None
) -> None:  # fmt: skip
    """`launch` of _hopper.py for wgmma.cu, by a plan, or by the model's choice."""
    chosen = plan_for(q, k, causal) if plan is None else plan
    launch("attention/wgmma", q, k, v, out, causal, scale_log2, chosen)
