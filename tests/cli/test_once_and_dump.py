"""`compare --once` and `--dump`, as far as a machine without a GPU goes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import call

from suite.core import paths

SMALL = ["compare", "--op", "sigmoid", "--shape", "N=64", "--device", "cpu"]


def test_once_makes_a_call_for_each_case_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    import torch_impls.sigmoid as torch_sigmoid

    plain = torch_sigmoid.sigmoid
    monkeypatch.setattr(torch_sigmoid, "sigmoid", lambda x: calls.append(str(x.dtype)) or plain(x))
    monkeypatch.setattr(paths, "results", lambda: tmp_path)
    assert call(monkeypatch, *SMALL, "--once", "torch") == 0
    assert calls == [f"torch.{dtype}" for dtype in ("float32", "float16", "bfloat16") for _ in range(2)]
    assert capsys.readouterr().err.splitlines()[-1] == "sigmoid N=64 bfloat16 ieee: torch called"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("fortran", 2, "error: --once: unknown 'fortran'; valid are triton, "),
        ("cuda/wgmma", 1, "cuda/wgmma unsupported: needs an NVIDIA GPU (sm_90); this is a CPU"),
    ],
)
def test_once_says_what_cannot_be_called(
    name: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--op", "matmul", "--shape", "16", "--dtype", "bf16", "--device", "cpu"]
    assert call(monkeypatch, *words, "--once", name) == status
    assert said in capsys.readouterr().err


def test_once_calls_a_file_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def sigmoid(x):\n    return x.sigmoid() if x.dtype.itemsize == 4 else 1 / 0\n", encoding="utf-8")
    assert call(monkeypatch, *SMALL, "--dtype", "fp32", "--with", mine, "--once", "with/mine") == 0
    assert call(monkeypatch, *SMALL, "--dtype", "fp16", "--with", mine, "--once", "with/mine") == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "sigmoid N=64 float32 ieee: with/mine called"
    assert said[1] == "sigmoid N=64 float16 ieee: with/mine error: ZeroDivisionError: division by zero (mine.py:2)"


@pytest.mark.slow
@pytest.mark.thorough
def test_dump_writes_the_program_of_xla_beside_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--dtype", "fp32", "--no-time", "--inputs", "none", "--dump", "ptx,hlo", "--out", tmp_path]
    assert call(monkeypatch, *words, "--impl", "jax", "--impl", "triton", "--impl", "torch") == 0
    text = (tmp_path / "code" / "jax" / "sigmoid-N=64-float32-ieee" / "program.hlo").read_text(encoding="utf-8")
    assert "HloModule" in text
    assert "f32[64]" in text
    with (tmp_path / "sigmoid.csv").open(encoding="utf-8", newline="") as file:
        code = {row["implementation"]: row["code"] for row in csv.DictReader(file)}
    assert code == {
        "jax": "code/jax/sigmoid-N=64-float32-ieee: program.hlo",
        "triton": "none: interpreted, without a GPU",
        "torch": "none: torch runs the kernels of a library",
    }
    assert "code: triton: none: interpreted, without a GPU; jax: hlo; torch: none: " in capsys.readouterr().err
