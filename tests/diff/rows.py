"""Rows and results folders for the tests of `diff`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from suite.cli import main as cli
from suite.diff import table
from suite.diff.change import Change, Diff
from suite.diff.judge import judge
from suite.diff.load import Side, row_key
from suite.results.csv_file import to_csv
from suite.results.row import Row

H200 = {"device": {"type": "cuda", "name": "NVIDIA H200"}, "host": {"name": "a CPU"}, "packages": {"torch": "2.11.0"}}


VENDORS = {"torch": "cuBLAS", "torch/cudnn": "cuDNN", "jax": "XLA"}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Run `python -m suite ARGUMENTS` in this process, and return the exit status."""
    monkeypatch.setattr(sys, "argv", ["suite", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def row(implementation: str = "triton", us: float | None = 100.0, width: float = 0.0, **values: Any) -> Row:
    """A row whose interval reaches `width` (relative) to either side, by a clock without ticks."""
    of = Row("matmul", "M=64,N=64,K=64", "float32", "ieee", implementation, "native", recorder="wall", cache="cold")
    of.vendor = VENDORS.get(implementation, "")
    of.runs, of.spread, of.vs_best_spread = 3, 0.0, 0.0  # processes that do not differ
    if us is not None:
        of = replace(of, device_us=us, device_us_low=us * (1 - width), device_us_high=us * (1 + width), samples=20)
    return replace(of, **values)


def ranked(times: dict[str, float], width: float = 0.0, **values: Any) -> list[Row]:
    """The rows of one case in one run, ranked against their best vendor row."""
    best = min((name for name in times if name in VENDORS), key=lambda name: times[name])
    rows = []
    for name, us in times.items():
        vs, arm = times[best] / us, 0.0 if name == best else width
        bounds = {"vs_best": vs, "vs_best_low": vs * (1 - arm), "vs_best_high": vs * (1 + arm)}
        rows.append(row(name, us, width, **bounds, **values))
    return rows


def as_side(rows: list[Row], environment: dict[str, Any] | None = H200) -> Side:
    return Side(Path("results"), {row_key(row): row for row in rows}, environment)


def judged(base: list[Row], new: list[Row], threshold: float = 0.03) -> dict[str, Change]:
    found = judge(as_side(base), as_side(new), threshold)
    return {change.base.implementation: change for change in found.changes}


def folder(path: Path, rows: list[Row], environment: dict[str, Any] | None = H200) -> Path:
    """A results folder as `compare` writes one."""
    path.mkdir(parents=True)
    for operation in {row.operation for row in rows}:
        text = to_csv([row for row in rows if row.operation == operation])
        (path / f"{operation}.csv").write_text(text, encoding="utf-8", newline="")
    if environment is not None:
        (path / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    return path


def assert_one_error(capsys: pytest.CaptureFixture[str], complaint: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err


def printed(found: Diff, width: int = 200) -> list[str]:
    """The lines that `diff` prints on a terminal or in a pipe."""
    return [line.plain for line in table.lines(found, width)]


IMPLEMENTATIONS = ["torch", "torch/cudnn", "jax", "triton", "cuda", "numpy"]


times = st.dictionaries(st.sampled_from(IMPLEMENTATIONS), st.floats(0.5, 1e6), min_size=1)


clocks = st.sampled_from([None, 1980.0, 1755.0, 1200.0])


@st.composite
def tables(draw: st.DrawFn, names: frozenset[str] | None = None) -> list[Row]:
    """The rows of one run. Some have no interval, some failed."""
    found = draw(times if names is None else st.fixed_dictionaries({n: st.floats(0.5, 1e6) for n in sorted(names)}))
    recorded = {"clock_sm_mhz": draw(clocks), "recorder": "cupti", "versions": draw(st.sampled_from(["1", "2"]))}
    vendor = any(name in VENDORS for name in found)
    rows = []
    for plain in ranked(found) if vendor else [row(name, us) for name, us in found.items()]:
        low, high = draw(st.floats(0.3, 1)), draw(st.floats(1, 3))
        values: dict[str, Any] = {f"device_us_{end}": plain.device_us * f for end, f in (("low", low), ("high", high))}
        if plain.vs_best not in (None, 1.0):
            values |= {f"vs_best_{end}": plain.vs_best * f for end, f in (("low", low), ("high", high))}
        fate = draw(st.sampled_from(["ok"] * 6 + ["no interval", "untimed", "wrong", "unsupported"]))
        if fate == "no interval":
            values |= dict.fromkeys(["device_us_low", "device_us_high", "vs_best_low", "vs_best_high"])
        elif fate != "ok":
            values |= dict.fromkeys(["device_us", "vs_best"])
            values["status"] = "ok" if fate == "untimed" else fate
        rows.append(replace(plain, **recorded, **values))
    return rows
