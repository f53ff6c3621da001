"""`import suite`: compare, cases, check, time and report from Python, and `assert_agrees`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from diff.rows import folder
from report.rows import RECORD, square
from tries import passes_once

import suite
from suite import api, frameworks, hardware
from suite.core.errors import DisagreementError, UsageError
from suite.core.least import Least
from suite.core.paths import ROOT
from suite.hardware.device import Device
from suite.report import write as report_files
from suite.results.csv_file import read_rows
from suite.results.frame import frame
from suite.results.row import COLUMNS, Row
from suite.runner import compare as runner
from suite.runner.observer import Step
from suite.testing import assert_agrees, cases, title


def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
    return a @ b


def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return 2 * (a + b)


def test_importing_suite_imports_no_framework() -> None:
    code = (
        "import sys, suite; suite.__version__; print({'torch', 'jax', 'triton', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_of_the_package_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="no attribute 'benchmark'; it has cases, check, compare, report, time"):
        suite.benchmark  # noqa: B018
    assert set(suite.__all__) <= set(dir(suite))


@pytest.mark.parametrize("size", ["M=2,N=3,K=4", (2, 3, 4), {"M": 2, "N": 3, "K": 4}], ids=["text", "tuple", "names"])
def test_a_size_is_given_as_text_tuple_or_names(size: Any) -> None:
    assert suite.check(matmul, "matmul", size, device="cpu").agrees
    (case,) = suite.cases("matmul", shapes=[size], dtypes="float32", precisions="ieee", layout="nn", device="cpu")
    assert title(case) == "matmul M=2,N=3,K=4 float32 ieee"


def test_compare_plans_what_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run itself is replaced: one row for each implementation, as of a run."""
    seen = []

    def run(jobs: Any, options: Any, observer: Any) -> list[Row]:
        rows = []
        for job in jobs:
            for case in job.cases:
                observer.step(Step(job.op.name, case.label, "checking", 0, 1))
                new = [Row(case.operation, case.label, case.dtype, case.precision, i.name) for i in job.implementations]
                observer.store(job.op, new)
                observer.case_finished(job.op, new)
                rows += new
        seen.append(options)
        return rows

    monkeypatch.setattr(runner, "compare", run)
    steps: list[str] = []
    given: dict[str, Any] = {"shapes": [(64,)], "implementations": ["torch", "num*", "cuda"], "dtypes": ["fp32"]}
    given["exclude"] = "cud*"
    found = suite.compare("vector_add", **given, device="cpu", timed=False, seed=3, out=tmp_path, on_step=steps.append)
    assert set(found.columns) - set(COLUMNS) == {"N", "inputs"}
    assert set(found.N) == {64}
    assert set(found.implementation) == {"torch", "numpy"}
    assert set(found.case) == {"N=64"}
    assert [(each.timed, each.seed, each.telling) for each in seen] == [(False, 3, True)]
    assert steps == ["[0/1] vector_add N=64: checking"]
    assert len(read_rows(tmp_path / "vector_add.csv")) == 2
    suite.compare("attention", device="cpu", causal=True, inputs="nan")
    assert not seen[-1].telling
    suite.compare("vector_add", device="cpu", sweep=True, transfers=True, compiles=True, repeat=3, max_noise=2.0)
    assert (seen[-1].native_only, seen[-1].host, seen[-1].transfers, seen[-1].compiles) == (True, None, True, True)
    assert (seen[-1].repeat, seen[-1].max_noise) == (3, 0.02)
    suite.compare("vector_add", device="cpu", min_time=2, samples=50)
    assert seen[-1].least == Least(2, 50)
    with pytest.raises(UsageError, match="samples=-1: neither may be negative"):
        suite.compare("vector_add", device="cpu", samples=-1)


@pytest.mark.slow
def test_compare_gives_the_rows_of_a_run() -> None:
    found = suite.compare("vector_add", shapes=[(64,)], implementations="numpy", dtypes="float32", device="cpu")
    (row,) = found.to_dict("records")
    assert (row["status"], row["execution"]) == ("ok", "native")
    assert row["device_us"] > 0
    assert row["threads"] == hardware.native_threads()


def test_check_gives_the_reason_of_a_wrong_result() -> None:
    assert suite.check(torch.add, "vector_add", (100,), dtype="fp16", device="cpu").agrees
    found = suite.check(twice, "vector_add", (100,), device="cpu")
    assert not found.agrees
    assert found.reason.startswith("value: at [")
    assert found.error_ratio > 1


def test_check_takes_arrays_of_other_frameworks() -> None:
    assert suite.check(lambda a, b: a + b, "vector_add", (100,), framework="numpy", device="cpu").agrees
    with pytest.raises(UsageError, match="framework: unknown 'tinygrad'"):
        suite.check(twice, "vector_add", (100,), framework="tinygrad")


def test_time_gives_a_time_and_the_ratio_to_a_vendor() -> None:
    timing = suite.time(torch.add, "vector_add", (1000,), beside="torch", device="cpu", max_noise=1000)
    assert timing.device_us is not None
    assert timing.device_us > 0
    assert timing.vs_best is not None
    assert [row.implementation for row in timing.rows] == ["with/add", "torch"]
    assert (timing.rows[0].device_us, timing.rows[0].vs_best) == (timing.device_us, timing.vs_best)
    assert timing.rows[1].vendor == "PyTorch"
    assert suite.time(torch.add, "vector_add", (1000,), device="cpu", max_noise=1000).vs_best is None


def test_a_time_has_the_threads_of_the_rows_of_compare_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return a + b

    for threads in (1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        timing = suite.time(add, "vector_add", (1000,), beside="torch", device="cpu", cache="warm", max_noise=1000)
        assert seen[-1] == timing.threads == timing.rows[0].threads == timing.rows[1].threads == threads


def test_a_framework_in_use_keeps_its_threads_and_the_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(frameworks.get("numpy")), "has_own_threads", lambda self: True)
    timing = suite.time(
        lambda a, b: a + b, "vector_add", (1000,), framework="numpy", beside="torch", device="cpu", cache="warm"
    )
    assert timing.threads is None
    assert timing.rows[1].threads is not None
    assert "numpy was in use before" in timing.rows[0].remarks


def test_a_time_takes_the_least_number_of_samples() -> None:
    timing = suite.time(torch.add, "vector_add", (10,), device="cpu", cache="warm", max_noise=1000, samples=70)
    assert timing.samples >= 70


def test_a_noisy_time_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite.time(torch.add, "vector_add", (1000,), device="cpu", cache="warm", max_noise=1e-9).noisy
    assert not suite.time(torch.add, "vector_add", (1000,), device="cpu", cache="warm", max_noise=1e6).noisy


@pytest.mark.slow(seconds=20)
def test_a_time_is_that_of_compare() -> None:
    """With a thread for each core, one took more than a hundred times as long as the other on two busy cores."""
    (row,) = suite.compare(
        "sigmoid", shapes=[(1_000_000,)], implementations="torch", dtypes="float32", device="cpu"
    ).to_dict("records")

    def is_near(_: int) -> None:
        timing = suite.time(torch.sigmoid, "sigmoid", (1_000_000,), beside="torch", device="cpu")
        assert 1 / 8 < timing.device_us / row["device_us"] < 8

    passes_once(is_near, range(3))


def test_a_wrong_function_is_not_timed() -> None:
    with pytest.raises(DisagreementError, match="with/twice: vector_add N=100 float32 ieee: value: at"):
        suite.time(twice, "vector_add", (100,), device="cpu")


def test_a_function_that_is_wrong_only_when_timed_is_refused() -> None:
    """It remembers its third result, which is right for the inputs of the check."""
    results: list[torch.Tensor] = []

    def remembers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        results.append(a + b)
        return results[min(len(results), 3) - 1].clone()

    with pytest.raises(DisagreementError, match="while timed: "):
        suite.time(remembers, "vector_add", (1000,), device="cpu", max_noise=1000)


def test_report_takes_frames_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It lies in the folder of its only run."""
    seen: list[tuple[list[str], Path]] = []
    monkeypatch.setattr(
        report_files, "write", lambda runs, formats, out: seen.append(([run.label for run in runs], out)) or []
    )
    run, given = folder(tmp_path / "run", square(512), RECORD), frame(square(512), RECORD)
    for each in (run, str(run / "matmul.csv"), given, [given, run], [given, given.head(3)]):
        suite.report(each)
    suite.report(run, out=tmp_path)
    assert seen == [
        (["NVIDIA H200"], run),
        (["NVIDIA H200"], run),
        (["NVIDIA H200"], Path("report")),
        (["frame-1", "run"], Path("report")),
        (["frame-1", "frame-2"], Path("report")),
        (["NVIDIA H200"], tmp_path),
    ]


@pytest.mark.parametrize(
    ("change", "formats", "message"),
    [
        (lambda given: given[["case"]], "html", "the frame has no column operation, dtype, precision, implementation"),
        (lambda given: given.head(0), "html", "frame-1: no results here"),
        (lambda given: pd.concat([given, given]), "html", "frame 1 has rows of several runs"),
        (lambda given: given, "pdf", "format: unknown 'pdf'; valid are html, md, png, svg"),
    ],
    ids=["columns", "empty", "twice", "format"],
)
def test_what_is_no_run_is_refused(change: Callable[[Any], Any], formats: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        suite.report(change(frame(square(), RECORD)), formats=formats, out=tmp_path)


def test_the_package_report_does_not_hide_the_function() -> None:
    import suite.report.load

    assert suite.report is api.report
    assert sys.modules["suite.report"].__name__ == "suite.report"


REFUSED = {
    "operation": (("matmull", (1, 2, 3)), {}, "unknown operation 'matmull'"),
    "dimensions": (("matmul", (1, 2)), {}, r"size \(1, 2\): matmul has 3 dimensions: M, N, K"),
    "dtype": (("matmul", (1, 2, 3)), {"dtype": "float128"}, "dtype: unknown 'float128'"),
    "precision": (("matmul", (1, 2, 3)), {"precision": "fast"}, "precision: unknown 'fast'; valid are ieee, tf32"),
    "inputs": (("matmul", (1, 2, 3)), {"inputs": "cats"}, "inputs: unknown 'cats'; valid are normal"),
    "option": (("matmul", (1, 2, 3)), {"causal": True}, "matmul has no option 'causal'"),
}


@pytest.mark.parametrize(("given", "keywords", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_checked_is_refused(given: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        suite.check(matmul, *given, **keywords, device="cpu")


def test_a_case_that_contradicts_the_other_arguments_is_refused() -> None:
    case = cases("matmul", inputs="telling", device="cpu")[0]
    with pytest.raises(UsageError, match="the case is of matmul, and the operation asked for is sigmoid"):
        suite.check(torch.sigmoid, "sigmoid", case)
    with pytest.raises(UsageError, match="a Case has its dtype"):
        suite.check(matmul, "matmul", case, dtype="float16")


def test_compare_refuses_what_the_command_line_refuses() -> None:
    with pytest.raises(UsageError, match="cache: unknown 'hot'"):
        suite.compare("matmul", cache="hot")
    with pytest.raises(UsageError, match="implementations 'nothing' matches none of"):
        suite.compare("matmul", implementations="nothing", device="cpu")
    with pytest.raises(UsageError, match="shapes are sizes of one operation"):
        suite.compare(["matmul", "sigmoid"], shapes=[(1, 2, 3)])


def test_only_what_runs_natively_is_timed() -> None:
    with pytest.raises(UsageError, match="beside: unknown 'cublas'; valid are triton,"):
        suite.time(torch.add, "vector_add", (10,), beside="cublas", device="cpu")
    with pytest.raises(UsageError, match="triton is interpreted on cpu, and not timed"):
        suite.time(torch.add, "vector_add", (10,), beside="triton", device="cpu")
    with pytest.raises(UsageError, match="cuda is emulated on cpu"):
        suite.time(torch.add, "vector_add", (10,), framework="cuda", device="cpu")


def test_assert_agrees_names_the_function_the_case_and_the_reason() -> None:
    assert_agrees(torch.add, "vector_add", (100,), device="cpu")
    with pytest.raises(
        AssertionError, match=r"twice is wrong on vector_add \(100,\): value: at .* are wrong; as if .*; error"
    ):
        assert_agrees(twice, "vector_add", (100,), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the printed result is that of a CPU")
def test_the_documented_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare` gives rows of a formula, and reports are not written."""
    reports: list[tuple[Any, Path]] = []
    monkeypatch.setattr(api, "compare", lambda *_, **__: frame(square(512), RECORD))
    monkeypatch.setattr(report_files, "write", lambda runs, formats, out: reports.append((list(formats), out)) or [])
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "documented"}
    printed = {}
    for language, body in blocks:
        if language:
            exec(body, names)
            printed[body] = capsys.readouterr().out
    results = [body for language, body in blocks if not language]
    (checked,) = [out for body, out in printed.items() if "suite.check" in body]
    (timed,) = [out for body, out in printed.items() if "suite.time" in body]
    assert checked == results[0]
    assert re.fullmatch(r"[\d.]+ [\d.]+\n", timed)
    assert reports == [(["html"], Path("report")), (["md"], Path("report")), (["html", "md"], Path("h200"))]


def test_the_readmes_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str) -> None:
    """With rows of a formula, a smaller product, and on the device that there is."""
    monkeypatch.setattr(api, "compare", lambda *_, **__: frame(square(512), RECORD))
    monkeypatch.setattr(report_files, "write", lambda runs, formats, out: [out])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for body in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(body.replace("4096", "64").replace('"cuda"', f'"{device}"'), names)
    assert names["c"].shape == (64, 64)
    assert torch.allclose(names["c"].float(), names["a"].float() @ names["b"].float(), rtol=2e-2, atol=2e-1)


def test_functions_run_on_the_device_of_their_inputs(where: Device) -> None:
    device = "cpu" if where.type == "cpu" else str(where)
    assert suite.check(lambda a, b: a + b, "vector_add", (100,), device=device).agrees
