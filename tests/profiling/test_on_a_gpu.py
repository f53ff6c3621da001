"""One call under Nsight Compute, and the code of compiled kernels, which need a GPU."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import call

from suite.profiling.nsight import INSTALL_HINT, SHARES, ncu

WORDS = ["compare", "--op", "vector_add", "--shape", "N=2^26", "--dtype", "fp32", "--inputs", "none"]
IMPLEMENTATIONS = ("torch", "triton", "jax", "cuda")


def rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "vector_add.csv").open(encoding="utf-8", newline="") as file:
        return {row["implementation"]: row for row in csv.DictReader(file)}


@pytest.mark.gpu
@pytest.mark.ncu
@pytest.mark.skipif(ncu() is None, reason=f"Nsight Compute (ncu) is not installed: {INSTALL_HINT}")
def test_an_addition_is_bound_by_the_memory_in_every_framework(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = [word for name in IMPLEMENTATIONS for word in ("--impl", name)]
    assert call(monkeypatch, *WORDS, *chosen, "--profile", "ncu", "--out", tmp_path) == 0
    found = rows(tmp_path)
    if any(
        "not profiled: ncu cannot" in row["reason"] or "ERR_NVGPUCTRPERM" in row["reason"] for row in found.values()
    ):
        pytest.skip(found["torch"]["reason"])
    assert {name: row["bound_by"] for name, row in found.items()} == dict.fromkeys(IMPLEMENTATIONS, "DRAM")
    assert all(0.0 <= float(row[column]) <= 1.05 for row in found.values() for column in SHARES)
    assert all(row["ncu_stall"] for row in found.values())


@pytest.mark.gpu
def test_the_code_of_what_was_launched_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = [
        *WORDS,
        "--impl",
        "triton",
        "--impl",
        "cuda",
        "--impl",
        "jax",
        "--no-time",
        "--dump",
        "ttir,ttgir,ptx,sass,hlo",
    ]
    assert call(monkeypatch, *words, "--out", tmp_path) == 0
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "code").rglob("*.*") if path.is_file()}
    kinds = {
        name: {file.rpartition(".")[2] for file in row["code"].split(", ")} for name, row in rows(tmp_path).items()
    }
    assert kinds == {"triton": {"ttir", "ttgir", "ptx", "sass"}, "cuda": {"ptx", "sass"}, "jax": {"hlo"}}
    assert all("EXIT" in text for name, text in files.items() if name.endswith(".sass"))
    assert all(".entry" in text for name, text in files.items() if name.endswith(".ptx"))
