"""Attention over a split sequence on Hopper's tensor cores: the steps of each rank, and results of emulated kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_ref._runtime.shares import zigzag
from cuda_ref.ring_attention import wgmma
from cuda_ref.ring_attention.wgmma import GROUP, Step, ring_attention, steps
from suite import ops
from suite.checking.judge import judge

OP = ops.get("ring_attention")
CASES = [  # B, H, H_kv, S, D; ranks; dtype: halves of a share end at no multiple of 64, and one is longer
    pytest.param((1, 2, 1, 1, 64), 3, "bfloat16", id="one row"),
    pytest.param((1, 2, 1, 77, 64), 3, "bfloat16", id="groups of heads"),
    pytest.param((1, 1, 1, 150, 128), 2, "float16", id="several tiles"),
]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("S", [1, 2, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_steps_cover_what_each_query_sees(ranks: int, S: int, causal: bool) -> None:
    """Row by row, by the places of queries and keys in the whole sequence."""
    places = [[(low + i if i < S // 2 else high + i - S // 2) for i in range(S)] for low, high in
              (zigzag(rank, ranks, S) for rank in range(ranks))]  # fmt: skip
    for rank in range(ranks):
        todo = steps(rank, ranks, S, causal)
        assert list(todo) == [(rank + step) % ranks for step in range(ranks)]
        for i in range(S):
            for sender, step in todo.items():
                seen = [j for j in range(S) if not causal or places[sender][j] <= places[rank][i]]
                given = range(i + 1 if causal and sender == rank else step.keys) if i >= step.row else range(0)
                assert seen == list(given)
            last = [sender for sender, step in todo.items() if i >= step.row and step.keys > 0][-1]
            assert next(sender for sender, step in todo.items() if i < step.done) == last


def over(shards: list[tuple[Tensor, ...]], rank: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The result of one rank, which gets the keys of all without processes."""
    ranks = len(shards)

    def as_they_arrive(xs: list[Tensor], use: Callable[..., object], group: Any, *, chained: bool) -> None:
        assert chained
        for step in range(ranks):
            sender = (rank + step) % ranks
            use(sender, *(xs if step == 0 else [x.contiguous() for x in shards[sender][1:]]))

    monkeypatch.setattr(wgmma, "as_they_arrive", as_they_arrive)
    group: Any = SimpleNamespace(rank=lambda: rank, size=lambda: ranks)
    return ring_attention(*shards[rank], group=group, causal=causal)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["full", "causal"])
@pytest.mark.parametrize(("size", "ranks", "dtype"), CASES)
def test_ranks_emulated(
    emulated: None, nan_outputs: None, monkeypatch: pytest.MonkeyPatch, size: tuple[int, ...], ranks: int, dtype: str,
    causal: bool,
) -> None:  # fmt: skip
    check(size, ranks, dtype, causal, torch.device("cpu"), monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_on_one_gpu(
    hopper: torch.device, nan_outputs: None, monkeypatch: pytest.MonkeyPatch, ranks: int, D: int, causal: bool
) -> None:
    """Every plan: many short tiles, a few long ones, a length that steps of 176 keys fit; and many rows of tiles."""
    for size in ((1, 140, 140, 200), (2, 4, 2, 1111), (1, 8, 2, 352), (1, 66, 33, 2500)):
        check((*size, D), ranks, "bfloat16", causal, hopper, monkeypatch)
    check((2, 4, 2, 333, D), ranks, "float16", causal, hopper, monkeypatch)


def check(
    size: tuple[int, ...], ranks: int, dtype: str, causal: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of each rank beside float64, twice on a GPU."""
    case = replace(OP.case(size, dtype, causal=causal), ranks=ranks)
    shards = [OP.inputs_of_rank(case, 1, rank, device) for rank in range(ranks)]
    for rank in range(ranks):
        out = over(shards, rank, causal, monkeypatch)
        verdict = judge(out, OP.truth_of_rank(shards, rank, case), shape=OP.output_shape(case), dtype=dtype)
        assert verdict.agrees, f"{size} rank {rank}: {verdict.reason}"
        assert device.type == "cpu" or torch.equal(out, over(shards, rank, causal, monkeypatch)), "other bits"


def test_what_is_refused() -> None:
    group: Any = SimpleNamespace(rank=lambda: 0, size=lambda: 2)
    q = torch.zeros(1, 1, 8, 96, dtype=torch.bfloat16)
    with pytest.raises(NotImplementedError, match="D must be 64 or 128; got D=96"):
        ring_attention(q, q, q, group=group)
    with pytest.raises(NotImplementedError, match=r"float16 and bfloat16; got torch.float32"):
        ring_attention(q.float(), q.float(), q.float(), group=group)
    assert ring_attention(q[:, :, :0, :64], q[:, :, :0, :64], q[:, :, :0, :64], group=group).shape == (1, 1, 0, 64)
    assert steps(0, 1, 5, True) == {0: Step(0, 5, 5)}
    assert GROUP == 64
