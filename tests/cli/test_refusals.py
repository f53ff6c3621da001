"""Command lines that are refused before any work, and their exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call

SQUARE = "M=16,N=16,K=16"
REFUSED = {
    "operation": (["--op", "matmull"], "unknown operation 'matmull'; did you mean matmul or int4_matmul? `"),
    "implementation": (["--op", "matmul", "--impl", "fortran"], "--impl 'fortran' matches none of triton, "),
    "positional": (["matmull"], "unknown operation 'matmull'; did you mean matmul or int4_matmul? `"),
    "list of operations": (["--op", "matmul,softmx"], "unknown operation 'softmx'; did you mean softmax"),
    "operation like no other": (["fft9"], "unknown operation 'fft9'; there are vector_add, "),
    "file as implementation": (["matmul", "--impl", "mine.py"], "is no implementation; a file is given by --with"),
    "nearest implementation": (["matmul", "--impl", "torch,gluno"], "did you mean triton/gluon?"),
    "nearest excluded": (["matmul", "--exclude", "cuda,gluno"], "did you mean triton/gluon?"),
    "nearest dtype": (
        ["matmul", "--dtype", "fp32,bf61"],
        "--dtype: unknown 'bf61'; valid are float32, float16, bfloat16",
    ),
    "nearest short dtype": (["matmul", "--dtype", "bf61"], "did you mean bf16?"),
    "nearest precision": (
        ["matmul", "--precision", "ieeee"],
        "valid are ieee, tf32, promoted, fast; did you mean ieee?",
    ),
    "nearest layout": (["matmul", "--layout", "nn,ntt"], "--layout: unknown 'ntt'; valid are nn, nt, tn, tt; did you"),
    "nearest inputs": (["matmul", "--inputs", "nan,subnormals"], "did you mean subnormal"),
    "nearest dimension": (
        ["lstm", "--shape", "T=1,b=1,I=1,H=1"],
        "unknown dimension 'b'; lstm has T, B, I, H; did you",
    ),
    "nearest column": (
        ["matmul", "--columns", "device_u,foo"],
        "--columns: unknown 'device_u'; the nearest are device_us",
    ),
    "nearest sort": (
        ["matmul", "--sort", "device_u"],
        "--sort: unknown 'device_u'; the nearest are device_us, device,",
    ),
    "nearest format": (
        ["matmul", "--format", "parqet"],
        "--format: unknown 'parqet'; valid are csv, parquet; did you mean",
    ),
    "nearest cache": (["matmul", "--cache", "colt"], "did you mean cold?"),
    "nearest profiler": (["matmul", "--profile", "ncuu"], "--profile: unknown 'ncuu'; valid is ncu; did you mean ncu?"),
    "nearest code": (["matmul", "--dump", "ptx,sas"], "--dump: unknown 'sas'; valid are ptx, sass"),
    "nearest once": (["matmul", "--once", "tirton"], "did you mean triton?"),
    "nearest baseline": (["matmul", "--baseline", "tirton"], "did you mean triton?"),
    "nearest device": (["matmul", "--device", "cdua"], "did you mean cuda"),
    "with-missing": (["matmul", "--with", "gone.py"], "--with gone.py: there is no such file"),
    "with-missing-of-a-reference": (["--reference", __file__, "--with", "gone.py"], "--with gone.py: there is no such"),
    "seed": (["matmul", "--seed", "-1"], "--seed -1: must lie between 0 and 9223372036854775807"),
    "with-twice": (["--op", "matmul", "--with", "k.py", "--with", "other/k.cu"], "with/k is k.py already; rename one"),
    "with-nameless": (["--op", "matmul", "--with", "/"], "--with '/': its name, without the suffix, cannot be shown"),
    "dtype": (
        ["--op", "matmul", "--dtype", "float128"],
        "--dtype: unknown 'float128'; valid are float32, float16, bfloat16",
    ),
    "precision": (["--op", "matmul", "--precision", "fp8"], "--precision: unknown 'fp8'; valid are ieee, tf32"),
    "precision-of-dtype": (["--op", "matmul", "--dtype", "float16", "--precision", "tf32"], "no case left: matmul"),
    "precision-of-op": (["--op", "sigmoid", "--precision", "tf32"], "no case left: sigmoid has no tf32"),
    "dimension-missing": (["--op", "matmul", "--shape", "M=16,N=16"], "missing K; matmul takes e.g. M=512,N=512,K=512"),
    "option-as-dimension": (
        ["--op", "sum", "--shape", "M=N=axis=1"],
        "axis is an option, not a dimension; give --axis",
    ),
    "dimension-unknown": (["--op", "matmul", "--shape", "M=16,N=16,Q=16"], "unknown dimension 'Q'; matmul has M, N, K"),
    "dimension-negative": (["--op", "matmul", "--shape", "M=16,N=16,K=-4"], "K=-4 must be at least 0"),
    "dimension-text": (["--op", "matmul", "--shape", "M=16,N=16,K=big"], "K='big' is not a whole number"),
    "too-large": (["--op", "matmul", "--shape", "M=9999999,N=9999999,K=9999999"], "needs at least"),
    "shape-of-many": (["--op", "all", "--shape", SQUARE], "--shape has the dimensions of one operation"),
    "causal": (["--op", "matmul", "--causal"], "--causal/--no-causal is not an option of matmul"),
    "layout": (["--op", "sigmoid", "--layout", "nt"], "--layout is not an option of sigmoid"),
    "layout-unknown": (["--op", "matmul", "--layout", "zz"], "--layout: unknown 'zz'; valid are nn, nt, tn, tt"),
    "device": (["--op", "matmul", "--device", "tpu"], "--device: unknown 'tpu'; valid are cpu, cuda, cuda:INDEX"),
    "device-index": (["--op", "matmul", "--device", "cuda:99"], "--device cuda:99: "),
    "cache": (["--op", "matmul", "--cache", "tepid"], "--cache: unknown 'tepid'; valid are cold, warm"),
    "max-noise": (["--op", "matmul", "--max-noise", "0"], "--max-noise 0: must lie between 0 and 1000 percent"),
    "once-and-more": (["--op", "matmul", "--once", "torch", "--dump", "hlo"], "--once makes one call and nothing else"),
    "profile-on-a-cpu": (
        ["--op", "matmul", "--device", "cpu", "--profile", "ncu"],
        "--profile ncu: needs an NVIDIA GPU",
    ),
    "repeat": (["--op", "matmul", "--no-time", "--repeat", "3"], "--repeat 3: --no-time times nothing"),
    "nothing": (
        [],
        "compare needs exactly one of --op, --reference FILE, --kernelbench FILE and --gpumode DIR: "
        "got none; e.g. --op matmul",
    ),
    "two operations": (["--op", "matmul", "--reference", "r.py"], "got --op and --reference"),
    "no reference": (["--reference", "r.py"], "--reference r.py: there is no such file"),
    "heads": (["--op", "attention", "--shape", "B=1,H=3,H_kv=2,S_q=4,S_k=4,D=64"], "H=3 must be a multiple of H_kv=2"),
}


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_unusable_arguments_are_one_line_and_exit_2_before_any_work(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "matmul.csv"
    kept.write_text("earlier results\n", encoding="utf-8")
    assert call(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err
    assert kept.read_text(encoding="utf-8") == "earlier results\n"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare"],
        ["compare", "--op"],
        ["compare", "--op", "matmul", "--seed", "x"],
        ["comparison"],
        ["compare", "--wat"],
    ],
    ids=" ".join,
)
def test_arguments_that_do_not_parse_exit_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, *arguments) == 2


def test_out_that_is_a_file_is_an_error_and_the_file_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "notes"
    target.write_text("mine", encoding="utf-8")
    assert call(monkeypatch, "compare", "--op", "vector_add", "--out", str(target)) == 2
    assert "is a file; give a folder" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "mine"
