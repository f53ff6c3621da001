"""Attention over a split sequence on Hopper's tensor cores: attention/wgmma with sums that wait for the next keys."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_ring_attention
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.symmetric import as_they_arrive
from cuda_ref.attention._hopper import check_covered, copied, readable, scales, strides
from cuda_ref.attention._plan import PLANS, choose

REQUIRES = "sm_90"
DETERMINISTIC = True
HEAD_DIMS = (64, 128)
GROUP = 64
"""Rows whose sums lie together in memory: see wgmma.cu."""


class Step(NamedTuple):
    """The launch that adds the keys of one rank."""

    row: int
    """The first query that sees them."""
    keys: int
    """Number of keys that are seen, from the first one on. The step is left out if it is 0."""
    done: int
    """Queries before this one have seen all their keys, and get their output."""


class Sums(NamedTuple):
    """Running sums of all queries: see RunningSums in wgmma.cu."""

    acc: Tensor
    m: Tensor
    l: Tensor  # noqa: E741 (the field's name for it)


def ring_attention(
    q: Float[Tensor, "B H S D"],
    k: Float[Tensor, "B H_kv S D"],
    v: Float[Tensor, "B H_kv S D"],
    *,
    group: dist.ProcessGroup,
    causal: bool = False,
) -> Float[Tensor, "B H S D"]:
    """This rank's rows of softmax(q k^T / sqrt(D)) v over the sequence of all ranks of `group`.

    This rank's own keys come first; each launch hides the copy of the next rank's keys and values.

    Shapes: q (B, H, S, D), k and v (B, H_kv, S, D), the same shapes on all ranks, D 64 or 128; query head h reads key
    head h // (H // H_kv). Operands that TMA cannot read are copied first. The output is contiguous.
    Causal: shares are zigzag, as in the plain implementation. NaN or infinity in a masked value may reach a result.
    Dtypes: float16, bfloat16; scores, softmax and sums in float32, also between launches; weights rounded to 16 bits
    for their product with v.
    Devices: GPUs of compute capability 9.0 that reach each other's memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for float32, other D, sizes that attention/wgmma
    refuses, and more than 16 ranks; build.CudaError if a launch fails.
    Source: see wgmma.cu.
    """
    B, H, _, S, D = check_ring_attention(q, k, v)
    check_covered("ring_attention", q, k, HEAD_DIMS, None)
    out = q.new_empty(B, H, S, D)
    if out.numel() == 0:
        return out
    q, sums, rank = readable(q), new_sums(q), group.rank()
    todo = steps(rank, group.size(), S, causal)

    def add(sender: int, keys: Tensor, values: Tensor) -> None:
        add_keys(todo[sender], q, keys, values, out, sums, causal and sender == rank, sender == rank)

    as_they_arrive([k, v], add, group, chained=True)
    return out


def config(q: Tensor, k: Tensor, v: Tensor, *, group: dist.ProcessGroup, causal: bool = False) -> str:
    """The plan for this rank's own keys, as in attention/wgmma.py."""
    if q.numel() == 0:
        return ""
    return f"wgmma {PLANS[q.shape[3]][_plan(q, q.shape[2], k.shape[2], causal)]}{copied(q, k, v)}"


def steps(rank: int, ranks: int, S: int, causal: bool) -> dict[int, Step]:
    """The step of each rank's keys, in the order in which they arrive: this rank's, then those of the ranks behind."""
    senders = [(rank + step) % ranks for step in range(ranks)]
    seen = [_seen(sender, rank, S, causal) for sender in senders]
    return {
        sender: Step(*each, _done([row for row, keys in seen[place + 1 :] if keys > 0], S))
        for place, (sender, each) in enumerate(zip(senders, seen, strict=True))
    }


def _seen(sender: int, rank: int, S: int, causal: bool) -> tuple[int, int]:
    """The first query that sees keys of `sender`, and how many keys are seen. This rank's own keys have a mask too."""
    if not causal or sender == rank:
        return 0, S
    return (0, S // 2) if sender < rank else (S // 2, S)


def _done(later_rows: Sequence[int], S: int) -> int:
    """The first query that a later step still changes. later_rows: the first query of each later step."""
    return min(later_rows, default=S)


def new_sums(q: Tensor) -> Sums:
    """Uninitialised sums for all queries of q (B, H, S, D)."""
    B, H, S, D = q.shape
    rows = B * H * _padded(S)
    acc = torch.empty(rows * D, dtype=torch.float32, device=q.device)
    return Sums(acc, acc.new_empty(rows), acc.new_empty(rows))


def add_keys(
    step: Step, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, sums: Sums, masked: bool, first: bool
) -> None:
    """Adds the first keys of a rank to the sums. masked: query i sees the keys up to i. first: there are no sums yet.

    Rows before `step.done` of `out` get their result. q is readable by TMA; keys and values are contiguous.
    """
    if step.keys == 0:
        return
    row = step.row // GROUP * GROUP
    q, out = q[:, :, row:], out[:, :, row:]
    k, v = (readable(x)[:, :, : step.keys] for x in (keys, values))
    (B, H, S_q, D), H_kv = q.shape, k.shape[1]
    build.launch(
        "ring_attention/wgmma", "ring_attention_wgmma", q.device,
        q, k, v, out, sums.acc[row * D :], sums.m[row:], sums.l[row:], B, H, H_kv, S_q, step.keys, D,
        *strides(q), *strides(k), *strides(v), *strides(out), _padded(row + S_q), step.row - row,
        max(step.done - row, 0), first, masked, scales(D, None)[1], _plan(q, S_q, step.keys, masked),
        build.DTYPES[q.dtype],
    )  # fmt: skip


def _padded(S: int) -> int:
    """S rounded up to a multiple of GROUP."""
    return -(-S // GROUP) * GROUP


def _plan(q: Tensor, S_q: int, S_k: int, causal: bool) -> int:
    return choose(q.shape[3], causal, S_q, S_k, q.shape[0] * q.shape[1], multiprocessors(q.device))
