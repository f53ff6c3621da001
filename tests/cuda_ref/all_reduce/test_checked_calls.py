"""Kernels over ranks whose accesses are checked or counted: the memory of all ranks is known to the checks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from cuda_ref import build
from cuda_ref.build import compiler

pytestmark = pytest.mark.skipif(not compiler.can_check(), reason="accesses are checked by GCC only; set CXX=g++")
CALLS = (("packets", build.checked), ("two_shot", build.checked), ("packets", build.counted))


def one_rank(rank: int, ranks: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for name, how in CALLS:
        all_reduce = importlib.import_module(f"cuda_ref.all_reduce.{name}").all_reduce
        with how() as counts:
            for _ in range(2):
                assert torch.equal(all_reduce(torch.arange(1001.0), group=dist.group.WORLD), 2 * torch.arange(1001.0))
        if how is build.counted:
            assert counts[0].launches == 2
    dist.destroy_process_group()


@pytest.mark.thorough
@pytest.mark.slow(seconds=60)
def test_two_ranks_agree_under_the_checks(tmp_path: Path) -> None:
    for name, how in CALLS:
        build.library(f"all_reduce/{name}", "checked" if how is build.checked else "counted")  # once, not in each rank
    processes.spawn(one_rank, (2, str(tmp_path / "meeting")), nprocs=2)
