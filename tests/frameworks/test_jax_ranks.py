"""Programs of several processes come from JAX's compilation cache on every rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import ROOT

pytest.importorskip("jax")

RANK = """
import sys
import torch
import torch.distributed as dist
from suite.frameworks import _jax_ranks, jax as adapter
from suite.hardware.device import resolve

store, rank = sys.argv[1], int(sys.argv[2])
adapter.ADAPTER.prepare(resolve("cpu"))
dist.init_process_group("gloo", init_method=f"file://{store}", world_size=2, rank=rank)
_jax_ranks.mesh()
import jax
x = adapter.ADAPTER.to_native(torch.ones(8, 8))
outcome = adapter.ADAPTER.watch_cache()
total = _jax_ranks.mapped(lambda x, *, group: jax.lax.psum(x @ x, group))(x)
assert float(total[0, 0]) == 16.0
print("outcome:", outcome())
dist.barrier()
"""


@pytest.mark.slow(seconds=15)
@pytest.mark.thorough
def test_every_rank_finds_its_program_in_the_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}

    def outcomes(run: str) -> list[str]:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(tmp_path / run), str(rank)],
                cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for rank in range(2)
        ]  # fmt: skip
        return [rank.communicate()[0].partition("outcome: ")[2].split("\n")[0] for rank in ranks]

    assert outcomes("first") == ["miss", "miss"]
    assert outcomes("second") == ["hit", "hit"]
