"""The output of Nsight Compute, and the columns that are computed from it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from suite.hardware.device import Device
from suite.problem.case import Case
from suite.profiling import child, nsight
from suite.profiling.child import OnceError
from suite.profiling.nsight import NsightError
from suite.profiling.once import Once
from suite.results.row import Bound, Row

HEAD = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def table(*kernels: dict[str, str]) -> str:
    """The output of ncu, one line for each metric. A value may have its unit after a space."""
    lines = ["==PROF== Connected to process 17 (python3.12)", HEAD]
    for number, metrics in enumerate(kernels):
        for name, text in metrics.items():
            value, _, unit = text.partition(" ")
            lines.append(f'"{number}","17","gemm<a, b>","Command line profiler metrics","{name}","{unit}","{value}"')
    return "\n".join([*lines, "==PROF== Disconnected from process 17"])


def kernel(us: str = "177,312 ns", stall: str = "wait", **shares: float) -> dict[str, str]:
    """A kernel; `shares` are columns of a row, in percent."""
    of = {**dict.fromkeys(nsight.SHARES, 10.0), **shares}
    return {
        nsight.DURATION: us,
        **{metric: f"{of[name]} %" for name, metric in nsight.SHARES.items()},
        **{STALLED.format(name): "0.5 inst" for name in ("long_scoreboard", "wait", "barrier")},
        STALLED.format("selected"): "1 inst",
        STALLED.format("not_selected"): "9 inst",
        STALLED.format(stall): "2.5 inst",
    }


def columns(*kernels: dict[str, str]) -> dict[str, object]:
    return nsight.columns(nsight.kernels(table(*kernels)))


@pytest.mark.parametrize(
    ("shares", "bound"),
    [
        ({"ncu_tensor": 87.0, "ncu_l2": 60.0}, Bound.TENSOR),
        ({"ncu_dram": 92.1, "ncu_l2": 45.0}, Bound.DRAM),
        ({"ncu_l2": 71.0, "ncu_issue": 70.0}, Bound.L2),
        ({"ncu_dram": 91.0, "ncu_l2": 93.9}, Bound.DRAM),
        ({"ncu_dram": 61.0, "ncu_l2": 93.9}, Bound.L2),
        ({"ncu_issue": 95.0}, Bound.ISSUE),
        ({"ncu_tensor": 59.9, "ncu_issue": 40.0}, Bound.LATENCY),
        ({"ncu_occupancy": 99.0}, Bound.LATENCY),
    ],
    ids=str,
)
def test_the_busiest_unit_limits_a_kernel_and_latency_one_whose_units_are_idle(
    shares: dict[str, float], bound: Bound
) -> None:
    found = columns(kernel(**shares))
    assert found["bound_by"] is bound
    assert {name: found[name] for name in shares} == pytest.approx({name: each / 100 for name, each in shares.items()})


def test_a_table_of_a_gpu_is_read() -> None:
    """The table is from `compare --op matmul --shape 1024 --dtype bf16 --once triton` and Nsight Compute 2025.3, on an
    H200."""
    text = Path(__file__).with_name("recorded.csv").read_text(encoding="utf-8")
    found = nsight.columns(nsight.kernels(text))
    assert found == {
        "ncu_tensor": pytest.approx(0.3216),
        "ncu_dram": pytest.approx(0.1245),
        "ncu_l2": pytest.approx(0.3229),
        "ncu_issue": pytest.approx(0.1375),
        "ncu_occupancy": pytest.approx(0.0622),
        "ncu_stall": "long_scoreboard",
        "bound_by": Bound.LATENCY,
    }
    assert nsight.kernels(text)[0].us == pytest.approx(7.04)


def test_the_top_stall_is_no_state_in_which_a_warp_can_issue() -> None:
    assert columns(kernel(stall="long_scoreboard"))["ncu_stall"] == "long_scoreboard"


def test_kernels_of_one_call_count_by_their_time() -> None:
    found = columns(kernel("30 us", "barrier", ncu_dram=90.0), kernel("0.01 ms", "wait", ncu_dram=10.0))
    assert found["ncu_dram"] == pytest.approx(0.7)
    assert (found["bound_by"], found["ncu_stall"]) == (Bound.DRAM, "barrier")


def test_every_figure_is_a_column_of_a_row() -> None:
    row = Row("matmul", "M=1,N=1,K=1", "float32", "ieee", "triton")
    row.fill(columns(kernel(ncu_tensor=80.0)))
    assert (row.ncu_tensor, row.bound_by) == (pytest.approx(0.8), Bound.TENSOR)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,280.5", 1280.5), ("1'280", 1280), ("1\u202f280", 1280), ("0", 0), ("n/a", None), ("nan", None), ("", None)],
    ids=repr,
)
def test_numbers_have_separators_of_any_locale(text: str, number: float | None) -> None:
    assert nsight._number(text) == number


def test_a_metric_that_the_device_lacks_is_an_empty_column() -> None:
    without = kernel(ncu_dram=90.0)
    without[nsight.SHARES["ncu_tensor"]] = "n/a"
    del without[nsight.SHARES["ncu_l2"]]
    found = columns(without)
    assert (found["ncu_tensor"], found["ncu_l2"], found["bound_by"]) == (None, None, Bound.DRAM)


def test_the_wide_form_is_read_too() -> None:
    names, values = [nsight.DURATION, nsight.SHARES["ncu_dram"], STALLED.format("wait")], ["usecond", "%", "inst"]
    lines = [["ID", "Kernel Name", *names], ["", "", *values], ["0", "add", "1,362.1", "93.25", "4.5"]]
    (found,) = nsight.kernels("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))
    assert (found.name, found.us, found.stalls()) == ("add", 1362.1, {"wait": 1.0})
    assert found.share(nsight.SHARES["ncu_dram"]) == pytest.approx(0.9325)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("==WARNING== No kernels were profiled.", "ncu printed no table: ==WARNING== No kernels were profiled."),
        (HEAD, "ncu saw no kernel"),
        (table({nsight.DURATION: "12 fortnight"}), "ncu gave gpu__time_duration.sum as '12' 'fortnight'"),
        (table({nsight.SHARES["ncu_l2"]: "12 %"}), "ncu gave gpu__time_duration.sum as '' ''"),
    ],
    ids=["no kernel", "an empty table", "an unknown unit", "no time"],
)
def test_what_ncu_does_not_say_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(NsightError) as raised:
        nsight.columns(nsight.kernels(text))
    assert str(raised.value) == reason
    assert not raised.value.refused


ONCE = Once(Case("vector_add", (("N", 64),), "float32"), "numpy", 0, Device("cpu", name="CPU"))


def script(folder: Path, *lines: str) -> str:
    """A program in place of ncu. `$log` is the file that its table goes to."""
    path = folder / "ncu"
    find = 'while [ "$1" != --log-file ]; do shift; done; log=$2'
    path.write_text("\n".join(["#!/bin/sh", find, *lines]) + "\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_call_under_ncu_fills_the_columns(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(table(kernel(ncu_dram=92.0)), encoding="utf-8")
    found = child.profile(ONCE, script(tmp_path, f"cp {tmp_path}/table.csv $log"), cold=True, timeout_s=100)
    assert found["bound_by"] is Bound.DRAM


@pytest.mark.parametrize(
    ("lines", "kind", "reason"),
    [
        (["echo '==ERROR== ERR_NVGPUCTRPERM - no permission' > $log", "exit 1"], NsightError, "NVreg_Restrict"),
        (["echo 'out of memory' >&2", "echo '==ERROR== The application returned 1'", "exit 1"], OnceError, "^out of m"),
        (["exit 3"], OnceError, "its process ended with exit status 3"),
        (["sleep 60"], OnceError, "did not end within 0.5 s"),
    ],
    ids=["no permission", "a failed call", "no word", "a hang"],
)
def test_a_call_that_cannot_be_profiled_says_why(
    tmp_path: Path, lines: list[str], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        child.profile(ONCE, script(tmp_path, *lines), cold=False, timeout_s=0.5 if "sleep 60" in lines else 100)


@pytest.mark.parametrize(("cold", "caches"), [(True, "all"), (False, "none")], ids=["cold", "warm"])
def test_the_caches_are_as_they_were_timed(cold: bool, caches: str) -> None:
    words = nsight.command("ncu", Path("log"), cold=cold)
    assert words[words.index("--cache-control") + 1] == caches
    assert words[words.index("--clock-control") + 1] == "none"
