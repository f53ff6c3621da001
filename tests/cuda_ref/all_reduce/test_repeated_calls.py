"""Calls that use the same memory one after the other, by processes that share it: sums are exact and the same on all.

The kernels rely on what earlier calls have left in the memory of all ranks: words that are 0, or numbers that grow.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor

from cuda_ref import build
from cuda_ref.all_reduce import _shares, packets

KERNELS = (("", 0), (".packets", 1), (".packets", 2), (".two_shot", 0), (".ring", 0), (".overlapped", 0))
"""Names, and the steps of cuda/packets."""
SIZES = ((1, torch.bfloat16), (5000, torch.float16), (5000, torch.float16), (33333, torch.bfloat16), (7, torch.float32))


def vectors(n: int, dtype: torch.dtype, ranks: int, seed: int) -> list[Tensor]:
    """With zeros of both signs: cuda/packets sends neither of them as a word that is 0."""
    drawn = [torch.randn(n, generator=torch.Generator().manual_seed(100 * seed + rank)) for rank in range(ranks)]
    for x in drawn:
        x[seed % 2 :: 2] = -0.0
        x[1::4] = 0.0
    return [x.to(dtype) for x in drawn]


def one_rank(rank: int, ranks: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for name, steps in KERNELS:
        packets.SECOND_CROSSING_BYTES = 2**40 if steps == 1 else -1
        if name == ".overlapped" and ranks == 3:
            continue
        all_reduce = importlib.import_module(f"cuda_ref.all_reduce{name}").all_reduce
        for call, (n, dtype) in enumerate(SIZES * 2):
            xs = vectors(n, dtype, ranks, call)
            found = all_reduce(xs[rank], group=dist.group.WORLD)
            every = [torch.empty_like(found) for _ in xs]
            dist.all_gather(every, found)
            assert all(torch.equal(each.view(torch.uint8), found.view(torch.uint8)) for each in every), (name, call)
            total = torch.zeros(n)
            for x in xs:
                total += x.float()
            if name != ".ring":  # rounds each sum, in another order
                assert torch.equal(found, total.to(dtype)), (name, call)
            torch.testing.assert_close(found.float(), total, rtol=0, atol=0.1)
    for call, (n, dtype) in enumerate(SIZES * 2):
        check_shares(rank, call, n, dtype, ranks)
    dist.destroy_process_group()


def check_shares(rank: int, call: int, n: int, dtype: torch.dtype, ranks: int) -> None:
    """A reduce-scatter, an all-gather and a sum, which use the same memory in turns."""
    group, lanes = dist.group.WORLD, 16 // dtype.itemsize
    assert group is not None
    xs = [x.view(ranks, -1) for x in vectors(ranks * lanes * n, dtype, ranks, call)]
    total = torch.zeros(ranks, lanes * n)
    for x in xs:
        total += x.float()
    assert torch.equal(_shares.reduce_scatter(xs[rank], group), total[rank : rank + 1].to(dtype)), call
    xs = [x.view(n, 1) for x in vectors(n, dtype, ranks, call)]
    assert torch.equal(_shares.all_gather(xs[rank], group), torch.cat(xs)), call
    packets.SECOND_CROSSING_BYTES = -1
    found = packets.all_reduce(xs[rank].view(-1), group=group)
    torch.testing.assert_close(found.float(), sum(x.float().view(-1) for x in xs), rtol=0, atol=0.1)


@pytest.mark.thorough
@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_calls_leave_the_memory_as_the_next_ones_need_it(ranks: int, tmp_path: Path) -> None:
    for name in ("all_reduce", "packets", "two_shot", "ring", "overlapped", "_shares"):
        build.library(f"all_reduce/{name}", "host")  # once, not in each rank
    processes.spawn(one_rank, (ranks, str(tmp_path / "meeting")), nprocs=ranks)


def test_two_steps_are_taken_where_they_save_more_than_a_crossing_takes() -> None:
    class Group:
        def __init__(self, ranks: int) -> None:
            self.size = lambda: ranks

    def chosen(ranks: int, mebibytes: float) -> str:
        x = torch.empty(int(mebibytes * 2**19), dtype=torch.bfloat16, device="meta")
        return packets.config(x, group=Group(ranks))  # type: ignore[arg-type]

    assert [chosen(2, size) for size in (1 / 16, 1, 256)] == ["one_step"] * 3
    assert [chosen(4, size) for size in (1 / 16, 1, 256)] == ["one_step", "two_steps", "two_steps"]
    assert chosen(4, 0) == ""
