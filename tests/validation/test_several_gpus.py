"""The tables of several GPUs: sizes of a rank, commands, and our fastest implementation beside the baseline."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from suite import ops
from suite.results.row import Row, Status
from validation import several_gpus

PRODUCTS = [each for each in several_gpus.TABLES if each.operation != "all_reduce"]


def total_flops(table: several_gpus.Table, problem: several_gpus.Problem, ranks: int) -> int:
    operation, sizes = ops.get(table.operation), problem.of_rank(ranks)
    case = operation.case(tuple(sizes[name] for name in operation.dims), "bfloat16")
    return ranks * operation.flops(replace(case, ranks=ranks))


@pytest.mark.parametrize("table", PRODUCTS, ids=lambda table: table.operation)
def test_the_ranks_together_solve_the_same_problem(table: several_gpus.Table) -> None:
    for problem in table.problems:
        assert len({total_flops(table, problem, ranks) for ranks in several_gpus.RANKS}) == 1


def test_a_name_states_the_product_of_all_ranks() -> None:
    for table in PRODUCTS[:2]:
        for problem in table.problems:
            m, n, k = map(int, problem.name.split(" x "))
            assert total_flops(table, problem, 4) == 2 * m * n * k


def test_a_second_run_goes_on_in_the_folder_of_its_table(tmp_path: Path) -> None:
    calls = several_gpus.commands(["tables", "operations"], 4, tmp_path, 64)
    assert len({call[call.index("--out") + 1] for call in calls}) == len(several_gpus.TABLES) + 1
    assert all("--resume" in call for call in calls)
    assert "M=16,N=56,K=64" in calls[1]


def test_the_sources_of_the_timed_lines_are_built_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"matmul/wgmma", "matmul/_wgmma16", "all_reduce/packets", "ring_attention/wgmma"} < set(
        several_gpus.sources()
    )
    calls = several_gpus.commands(several_gpus.STEPS, 2, tmp_path, 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert several_gpus.main(calls[0][3:]) == 0, "without a GPU there is nothing to build"


def test_the_time_ends_a_run_which_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    waits = [sys.executable, "-c", "import time; time.sleep(100)"]
    begin = time.monotonic()
    assert not several_gpus.run([waits, waits], 0.5)
    assert time.monotonic() - begin < 50
    assert "not run: the time is over" in capfd.readouterr().err


def test_a_command_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_gpus, "GRACE_S", 0.2)
    hangs = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(100)"
    begin = time.monotonic()
    assert not several_gpus.run([[sys.executable, "-c", hangs]], 2.0)
    assert time.monotonic() - begin < 50


def row(implementation: str, us: float, case: str, *, vendor: str | None = None, status: Status = Status.OK) -> Row:
    return Row(
        operation="all_gather_matmul", case=case, dtype="bfloat16", precision="ieee", implementation=implementation,
        status=status, device_us=us, vendor=vendor, ranks=4,
    )  # fmt: skip


def test_our_fastest_line_is_judged_against_the_fastest_of_torch() -> None:
    case = "M=1024,N=3584,K=4096,ranks=4"
    rows = [
        row("torch", 400.0, case, vendor="NCCL"), row("torch/symm_fused", 300.0, case, vendor="torch"),
        row("jax", 100.0, case, vendor="XLA"), row("cuda/wgmma", 250.0, case), row("triton", 240.0, case),
        row("cuda/auto", 1.0, case, status=Status.WRONG), row("triton", 1.0, "M=7,N=3584,K=4096,ranks=4"),
    ]  # fmt: skip
    (found,) = several_gpus.verdicts(rows)
    assert found.problem == "4096 x 14336 x 4096"
    assert (found.baseline.implementation, found.best.implementation) == ("torch/symm_fused", "triton")
    assert (found.ratio, found.aim) == (1.25, 1.35)
    assert "1.35, missed" in several_gpus.table([found])


def test_causal_rows_are_not_mixed_with_others() -> None:
    case = "B=1,H=16,H_kv=16,S=2048,D=128"
    rows = [
        replace(row(name, us, f"{case}{causal},ranks=4", vendor=vendor), operation="ring_attention")
        for causal, factor in (("", 1.0), (",causal", 0.5))
        for name, us, vendor in (("torch", 100.0 * factor, "NCCL"), ("triton", 80.0, None))
    ]
    found = several_gpus.verdicts(rows)
    assert [(each.problem, each.ratio) for each in found] == [
        ("S = 8192, 16 heads of 128", 1.25),
        ("S = 8192, 16 heads of 128, causal", 0.625),
    ]


def test_a_product_and_a_transfer_alone_are_the_limit_of_a_line() -> None:
    ours = replace(row("triton", 200.0, "M=1024,N=3584,K=4096,ranks=4"), product_us=150.0, communication_us=180.0)
    vendor = row("torch", 400.0, "M=1024,N=3584,K=4096,ranks=4", vendor="NCCL")
    (found,) = several_gpus.verdicts([ours, vendor])
    assert found.of_longer_part == 0.9
    assert found.cells[-1] == "0.90"
