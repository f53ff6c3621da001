"""Truths and bounds of operations over ranks, from the shares of three ranks in one process."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from suite import ops
from suite.checking.judge import judge
from suite.ops import attention, ring_attention
from suite.problem import blocks
from suite.problem.case import Case
from suite.problem.ranked import RankedOperation, Shard

CPU = torch.device("cpu")
RANKS = 3


def shards_of(
    name: str, shape: tuple[int, ...], dtype: str, **options: bool
) -> tuple[RankedOperation, Case, list[Shard]]:
    op = ops.get(name)
    assert isinstance(op, RankedOperation)
    case = replace(op.case(shape, dtype, **options), ranks=RANKS)
    return op, case, [op.inputs_of_rank(case, 5, rank, CPU) for rank in range(RANKS)]


def agrees(op: RankedOperation, case: Case, shards: list[Shard], rank: int, result: Tensor) -> bool:
    truths = list(op.truth_of_rank(shards, rank, case))
    return judge(result, truths, shape=op.output_shape(case), dtype=op.output_dtype(case)).agrees


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_reduce_scatter_takes_rounded_products_and_refuses_a_missing_rank(dtype: str) -> None:
    op, case, shards = shards_of("matmul_reduce_scatter", (33, 65, 34), dtype)
    for rank in range(RANKS):
        products = [(x @ w)[33 * rank : 33 * (rank + 1)] for x, w in shards]
        assert agrees(op, case, shards, rank, products[0] + products[1] + products[2])
        assert not agrees(op, case, shards, rank, products[0] + products[1])
        assert not agrees(op, case, shards, (rank + 1) % RANKS, products[0] + products[1] + products[2])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_summed_and_weights_are_the_same_on_all_ranks(dtype: str) -> None:
    op, case, shards = shards_of("data_parallel_grad", (50, 72, 40), dtype)
    assert all(torch.equal(shard[i], shards[0][i]) for shard in shards for i in op.replicated)
    assert not torch.equal(shards[1][0], shards[0][0])
    from torch_impls.linear_sigmoid_grad import gradients

    found = [gradients(*shard) for shard in shards]
    for rank in range(RANKS):
        dweight, dbias = (sum(each[i] for each in found) for i in (1, 2))
        parts = found[rank][0], dweight, dbias
        assert agrees(op, case, shards, rank, torch.cat([each.reshape(-1) for each in parts]))
        mean = found[rank][0], dweight / RANKS, dbias
        assert not agrees(op, case, shards, rank, torch.cat([each.reshape(-1) for each in mean]))


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("causal", [False, True])
def test_shares_of_a_sequence_cover_it_once(size: int, causal: bool) -> None:
    places = [
        start + i
        for rank in range(RANKS)
        for rows, start in ring_attention.pieces(size, RANKS, rank, causal=causal)
        for i in range(rows.stop - rows.start)
    ]
    assert sorted(places) == list(range(RANKS * size))
    shares = [torch.arange(size * rank, size * (rank + 1))[:, None] for rank in range(RANKS)]
    whole = ring_attention.whole(shares, causal=causal).flatten()
    assert sorted(whole.tolist()) == list(range(RANKS * size))
    assert torch.equal(whole[torch.tensor(places)], torch.arange(RANKS * size))


@pytest.mark.parametrize("causal", [False, True])
def test_ring_attention_is_attention_of_the_whole_sequence(causal: bool) -> None:
    op, case, shards = shards_of("ring_attention", (2, 4, 2, 33, 64), "float32", causal=causal)
    q, k, v = (ring_attention.whole([shard[i] for shard in shards], causal=causal) for i in range(3))
    of_all = attention.OP.case((2, 4, 2, 99, 99, 64), "float32", causal=causal)
    out = torch.cat([piece.value for piece in attention.OP.truth((q, k, v), of_all)]).reshape(2, 4, 99, 64)
    for rank in range(RANKS):
        rows = [
            out[:, :, start : start + some.stop - some.start]
            for some, start in ring_attention.pieces(33, RANKS, rank, causal=causal)
        ]
        assert agrees(op, case, shards, rank, torch.cat(rows, dim=2).float())
        own = [each[: 2 * 4 * 33 * 64] for each in (out[:, :, :33].reshape(-1),)]
        assert (rank == 0 and not causal) or not agrees(op, case, shards, rank, own[0].reshape(2, 4, 33, 64).float())


@pytest.mark.parametrize("causal", [False, True])
def test_short_heads_are_computed_together_in_blocks_of_any_size(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    op, case, shards = shards_of("ring_attention", (16, 4, 2, 5, 8), "float32", causal=causal)
    (at_once,) = op.truth_of_rank(shards, 1, case)
    for elements in (2**9, 2**12):  # one head at a time; some batch entries
        monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
        found = list(op.truth_of_rank(shards, 1, case))
        assert len(found) > 1
        for piece in found:
            torch.testing.assert_close(piece.value, at_once.value[piece.index], rtol=1e-13, atol=0)
            torch.testing.assert_close(piece.limit, at_once.limit[piece.index], rtol=1e-9, atol=0)
        assert sum(piece.value.numel() for piece in found) == at_once.value.numel()


def test_causal_shares_are_balanced() -> None:
    pairs = [
        sum(start + i + 1 for rows, start in ring_attention.pieces(64, RANKS, rank, causal=True) for i in range(32))
        for rank in range(RANKS)
    ]
    assert len(set(pairs)) == 1
