"""The comparison with Nsight Compute: the evaluation of its output; and, on a GPU that has it, the whole program."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import pytest

from suite import ops
from suite.profiling.nsight import DURATION, NsightError, ncu
from validation.against_nsight import IMPLEMENTATIONS, largest, main
from validation.nsight.profiler import (
    EMPTY,
    MARKER_CYCLES,
    Kernel,
    add_profile,
    calls,
    parse,
)
from validation.nsight.rows import Key, Side, judge, markdown, merge, to_csv
from validation.nsight.sides import Pace

KEY: Key = ("matmul", "M=4096,N=4096,K=4096", "bfloat16", "ieee", "triton")
MARKER = "_ZN2at4cuda11spin_kernelEl"

LONG = """==PROF== Connected to process 17 (python3.12)
==PROF== Profiling "spin_kernel" - 0: 0%....100% - 1 pass
a line of the program's own
"ID","Process ID","Kernel Name","Context","Section Name","Metric Name","Metric Unit","Metric Value"
"0","17","_ZN2at4cuda11spin_kernelEl","1","Command line profiler metrics","gpu__time_duration.sum","ns","1,280"
"1","17","matmul, a ""fast"" one","1","Command line profiler metrics","gpu__time_duration.sum","ns","177,312"
"1","17","matmul, a ""fast"" one","1","Command line profiler metrics","sm__cycles_elapsed.max","cycle","351"
==PROF== Disconnected from process 17
"""
WIDE = """==WARNING== something
"ID","Process ID","Kernel Name","gpu__time_duration.sum"
"","","","usecond"
"0","17","_ZN2at4cuda11spin_kernelEl","1.28"
"1","17","matmul","177.312"
"""


def test_both_forms_of_ncus_table_are_read() -> None:
    assert parse(LONG) == [Kernel(MARKER, 1.28), Kernel('matmul, a "fast" one', 177.312)]
    assert parse(WIDE) == [Kernel(MARKER, 1.28), Kernel("matmul", 177.312)]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", True),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", True),
        ("==WARNING== No kernels were profiled.", False),
        ("", False),
    ],
)
def test_a_missing_table_is_an_error_with_ncus_message(text: str, refused: bool) -> None:
    with pytest.raises(NsightError, match=(text.split(" -")[0].split() or ["no table"])[-1]) as raised:
        parse(text)
    assert raised.value.refused == refused


def test_a_unit_that_is_not_known_is_an_error() -> None:
    with pytest.raises(NsightError, match=r"gpu__time_duration.sum as '1,280' 'fortnight'"):
        parse(LONG.replace('"ns"', '"fortnight"'))


def test_markers_tell_calls_apart() -> None:
    a, b, mark = Kernel("a", 1), Kernel("b", 2), Kernel(MARKER, 9)
    assert calls([mark, a, b, mark, mark, b]) == [[mark, a, b], [mark], [mark, b]]
    with pytest.raises(NsightError, match="a was profiled before the first marker"):
        calls([a, mark])


def test_each_entry_gets_the_median_of_its_own_calls() -> None:
    table = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    plan, entries = [], [{"key": ["op", "c", "d", "p", name]} for name in "xyz"]
    for line, us in (("x", 10), ("y", 100), ("y", 102), ("x", 14), ("x", 11), ("y", 101)):
        plan.append(f'["op", "c", "d", "p", "{line}"]')
        names = [MARKER, f"{line}1", f"{line}2"]
        table += [f'"{len(table)}{i}","{name}","{DURATION}","us","{us / 2}"' for i, name in enumerate(names)]
    add_profile(entries, plan, "\n".join(table))
    x, y, z = entries
    assert (x["median"], x["names"], x["samples"]) == (11, ["x1", "x2"], 3)
    assert x["mhz"] == MARKER_CYCLES / 5.5
    assert y["median"] == 101
    assert "median" not in z
    with pytest.raises(NsightError, match="6 calls of 7"):
        add_profile(entries, [*plan, plan[0]], "\n".join(table))


def side(*medians: float, names: tuple[str, ...] = ("k",), config: str = "", other_us: float = 0.0) -> Side:
    return Side(list(medians), 7 * len(medians), list(names), config, other_us)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "note"),
    [
        (side(100.9, 100.9), side(100.0), "ok", ""),
        (side(101.1), side(100.0), "off", ""),
        (side(98.9), side(100.0), "off", ""),
        (side(5.29), side(5.0), "ok", ""),
        (side(5.31), side(5.0), "off", ""),
        (side(100.0, other_us=1.5), side(100.0), "ok", "copies and fills, 1.50 us, taken out"),
        (side(90.0, names=("a",)), side(100.0, names=("b",)), "unlike", "suite a, Nsight Compute b"),
        (side(100.0, names=("a",)), side(100.0, names=("b",)), "ok", "suite a, Nsight Compute b"),
        (side(90.0, config="BLOCK=64"), side(100.0, config="BLOCK=128"), "unlike", "suite BLOCK=64, Nsight"),
        (side(100.0), side(100.0, names=("k", "l")), "off", "suite none, Nsight Compute l"),  # one was lost
        (side(100.0, names=("k", "k")), side(100.0), "off", "suite k, Nsight Compute none"),
        (Side(reason="NotImplementedError: no"), side(100.0), "not run", "NotImplementedError: no"),
        (side(100.0), Side(), "not run", "no samples"),
    ],
)
def test_verdicts(ours: Side, theirs: Side, verdict: str, note: str) -> None:
    row = judge(KEY, ours, theirs)
    assert (row.verdict, row.implementation) == (verdict, "triton")
    assert note in row.note
    if verdict != "not run":
        assert row.ratio == pytest.approx(ours.us / theirs.us)


def test_the_offset_of_an_empty_kernel_is_subtracted() -> None:
    empty = [*KEY[:4], EMPTY]
    turns = {
        "record": [
            [
                {"key": list(KEY), "median": 2.7, "samples": 7, "names": ["k"]},
                {"key": empty, "median": 0.75, "samples": 7, "names": ["k"]},
            ]
        ],
        "profile": [
            [
                {"key": list(KEY), "median": 3.6, "samples": 7, "names": ["k"]},
                {"key": empty, "median": 1.5, "samples": 7, "names": ["k"]},
            ]
        ],
    }
    (row,) = merge(turns)  # type: ignore[arg-type]
    assert (row.verdict, row.offset_us) == ("ok", -0.75)
    assert judge(KEY, side(2.7), side(3.6)).verdict == "off"


def test_turns_are_merged_and_written(tmp_path: Path) -> None:
    def entry(us: float, **more: object) -> dict[str, object]:
        return {"key": list(KEY), "median": us, "samples": 7, "names": ["k"], "config": "BLOCK=128", **more}

    failed = {"key": [*KEY[:4], "jax"], "reason": "RuntimeError: no memory"}
    turns = {"record": [[entry(177.0), failed], [entry(178.0)]], "profile": [[entry(178.2), failed]]}
    ours, jax = merge(turns)  # type: ignore[arg-type]
    assert (ours.verdict, ours.suite_us, ours.suite_samples, ours.suite_blocks) == ("ok", 177.5, 14, "177.00 178.00")
    assert (jax.verdict, jax.note) == ("not run", "RuntimeError: no memory")
    environment = {"device": {"name": "NVIDIA H200"}, "command": "c", "packages": {"torch": "2.11.0"}}
    text = markdown([ours, jax], environment, "Nsight Compute 2025.3", 100.0)
    assert "# The suite's recorder against Nsight Compute on NVIDIA H200" in text
    assert "2 rows: 1 not run, 1 ok" in text
    rows = list(csv.DictReader(to_csv([ours, jax]).splitlines()))
    assert (float(rows[0]["suite_us"]), rows[1]["suite_us"]) == (177.5, "")


def test_the_largest_default_case() -> None:
    assert largest(ops.get("vector_add"), "bfloat16").label == "N=268435456"
    assert largest(ops.get("matmul"), "bfloat16").label == "M=4096,N=4096,K=4096"
    for name in ops.alone():
        case = largest(ops.get(name), "bfloat16")
        assert case in ops.get(name).default_cases("cuda")


def test_the_period_is_kept_and_late_calls_are_counted() -> None:
    pace = Pace(0.02)
    begin = time.perf_counter()
    for _ in range(4):
        pace.wait()
    assert time.perf_counter() - begin >= 0.06
    late = pace.late
    time.sleep(0.05)
    pace.wait()
    assert pace.late == late + 1


@pytest.mark.gpu
@pytest.mark.ncu
@pytest.mark.skipif(
    ncu() is None, reason="Nsight Compute (ncu) is not installed: apt-get install cuda-nsight-compute-13-0"
)
@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the GPU for itself: run this file without -n")
def test_the_recorder_agrees_with_nsight_compute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every operation's largest default case in bfloat16, by every framework's main implementation, within 1%."""
    status = main(["--out", str(tmp_path), "--keep", str(tmp_path / "logs"), "--seconds", "225"])
    printed = capsys.readouterr()
    if status == 3:
        pytest.skip(f"Nsight Compute cannot read this device's counters: {printed.err[:300]}")
    assert status == 0, printed.out + printed.err
    with (tmp_path / "nsight.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["operation"] for row in rows if row["verdict"] == "ok"} == set(ops.alone())
    assert {row["implementation"] for row in rows if row["verdict"] == "ok"} == set(IMPLEMENTATIONS)
