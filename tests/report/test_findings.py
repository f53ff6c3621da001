"""The sentences of a report say what the rows say."""

from __future__ import annotations

from pathlib import Path

import pytest
from diff.rows import folder
from report.rows import RECORD, failed, row, run_of, square

from suite.report.findings import findings
from suite.report.load import Run, load_runs
from suite.report.markdown import markdown
from suite.results.row import Row


def sentences(path: Path, rows: list[Row]) -> list[str]:
    return [finding.sentence for finding in findings([run_of(path / "run", rows)])]


def test_the_count_of_wins_comes_with_the_largest_lead_and_its_interval(tmp_path: Path) -> None:
    first, second, *_ = sentences(tmp_path, square())
    assert first.startswith("In 1 of 1 cases an implementation is faster than the best vendor library; in 0 ")
    assert second == (
        "The largest lead over a vendor library: cuda/wgmma is 1.100 times (1.098 to 1.102) as fast as torch in "
        "matmul M=1024,N=1024,K=1024 bfloat16."
    )


def test_a_lead_is_the_one_that_is_surest_not_the_widest_interval(tmp_path: Path) -> None:
    doubtful = [row("torch", size=512), row("triton", 3.0, 512, vs_best_low=1.03, vs_best_high=9.0)]
    found = sentences(tmp_path, [*square(), *doubtful])
    assert any("cuda/wgmma is 1.100 times" in text for text in found)


def test_a_gap_is_named(tmp_path: Path) -> None:
    found = sentences(tmp_path, [row("torch"), row("triton", 0.5)])
    assert any(text.startswith("The largest gap to a vendor library: triton is 0.500 times") for text in found)


def test_failures_come_first(tmp_path: Path) -> None:
    rows = [*square(), failed("numpy", "wrong"), failed("torch/math", "timeout")]
    assert sentences(tmp_path, rows)[0] == (
        "2 of the 8 rows that ran failed (1 wrong, 1 timeout), the first of them numpy in "
        "matmul M=1024,N=1024,K=1024 bfloat16."
    )


def test_the_first_failure_has_its_diagnosis(tmp_path: Path) -> None:
    wrong = row("numpy", status="wrong", diagnosis="as if b was read transposed (fits 100%)")
    assert sentences(tmp_path, [*square(), wrong])[0].endswith(": as if b was read transposed (fits 100%).")


def test_rows_that_say_little_are_listed(tmp_path: Path) -> None:
    weak = row("numpy", weakness="weak bound: zeros would pass", weak_bound=1.0)
    assert sentences(tmp_path, [*square(), weak])[0] == (
        "An ok proves little in 1 of the 7 rows: matmul M=1024,N=1024,K=1024 bfloat16 (weak bound: zeros would pass)."
    )


def test_agreement_names_the_largest_error(tmp_path: Path) -> None:
    rows = [*square(), row("numpy", 0.1, error_ratio=0.93)]
    found = sentences(tmp_path, rows)
    assert any(
        "All 7 results that were judged agree" in text and "0.93 of its bound (numpy in" in text for text in found
    )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([row("torch", device_us=None)], "No row has a time: the implementations were checked for agreement only."),
        ([row("cuda"), row("triton", 2.0)],
         "triton is the fastest in 1 of 1 cases that have at least two timed implementations."),
    ],
    ids=["not_timed", "no_vendor"],
)  # fmt: skip
def test_a_run_without_rivals_has_sentences_too(tmp_path: Path, rows: list[Row], sentence: str) -> None:
    assert sentence in sentences(tmp_path, rows)


def test_rows_of_the_host_win_nothing_beside_a_gpu(tmp_path: Path) -> None:
    on_cpu = [row("torch", device="cpu"), row("numpy", 5.0, device="cpu")]
    assert not any("numpy" in text for text in sentences(tmp_path, [*square(), *on_cpu])[:2])


def test_a_noisy_row_of_the_cpu_counts_against_the_gpu(tmp_path: Path) -> None:
    def at(size: int, device: str, us: float, **values: bool) -> Row:
        return row("torch", 1.0, 64, case=f"N={size}", operation="vector_add", device=device, latency_us=us, **values)

    rows = [at(64, "cuda:0", 10.0), at(64, "cpu", 1.0), at(4096, "cuda:0", 11.0), at(4096, "cpu", 5.0, noisy=True)]
    rows += [row("numpy", 1.0, 64, case="N=4096", operation="vector_add", device="cpu", latency_us=99.0)]
    found = sentences(tmp_path, rows)
    assert any("with data already on the device: at none of these sizes" in text for text in found)


def test_two_runs_are_compared_by_the_rows_that_both_have(tmp_path: Path) -> None:
    other = {**RECORD, "device": {**RECORD["device"], "name": "NVIDIA H100 80GB HBM3"}}
    slower = [row(each.implementation, (each.vs_best or 0) / 2) for each in square()[:4]]
    runs = load_runs([folder(tmp_path / "a", square(), RECORD), folder(tmp_path / "b", slower, other)])
    found = findings(runs)
    assert found[0].figure == "0.500 times"
    assert found[0].sentence.startswith(
        "NVIDIA H100 80GB HBM3 is 0.500 times as fast as NVIDIA H200: the median over 4 "
    )
    assert all(finding.sentence.startswith("NVIDIA H") for finding in found[1:])


@pytest.mark.parametrize(
    ("under_load", "sentence"),
    [
        (
            (150.0, 140.0),
            "Calls back to back rank implementations differently. matmul M=1024,N=1024,K=1024 bfloat16: the order "
            "differs",
        ),
        ((140.0, 150.0), "No two implementations change places between single calls and calls back to back."),
    ],
)
def test_another_order_under_load_is_named(tmp_path: Path, under_load: tuple[float, float], sentence: str) -> None:
    rows = square()
    for each, us in zip(sorted(rows, key=lambda row: row.device_us or 0), under_load, strict=False):
        each.sustained_us, each.sustained_us_low, each.sustained_us_high = us, us * 0.999, us * 1.001
    assert any(text.startswith(sentence) for text in sentences(tmp_path, rows))


def test_a_case_of_noisy_rows_says_nothing_about_the_order(tmp_path: Path) -> None:
    rows = square()
    for each in rows:
        each.sustained_us, each.noisy = each.device_us, True
    assert not any("back to back" in text for text in sentences(tmp_path, rows))


def cards(tmp_path: Path, other_speeds: dict[str, float], **values: float) -> list[Run]:
    """The same case on two cards: `torch` 1.0 and `triton` 1.05 on the first, `other_speeds` on the second."""
    other = {**RECORD, "device": {**RECORD["device"], "name": "NVIDIA H100 80GB HBM3"}}
    first = [row("torch", 1.0), row("triton", 1.05, of_limit=0.8)]
    second = [row(name, speed, **values) for name, speed in other_speeds.items()]
    return load_runs([folder(tmp_path / "a", first, RECORD), folder(tmp_path / "b", second, other)])


def test_a_case_with_another_winner_on_another_card_is_named(tmp_path: Path) -> None:
    runs = cards(tmp_path, {"torch": 1.0, "triton": 0.9}, of_limit=0.6)
    (text,) = [each.sentence for each in findings(runs) if "a different winner" in each.sentence]
    assert text == (
        "NVIDIA H100 80GB HBM3 has a different winner than NVIDIA H200 in 1 of 1 cases: matmul M=1024,N=1024,K=1024 "
        "bfloat16, triton (1.050 times as fast) on NVIDIA H200 and torch (1.111 times) on NVIDIA H100 80GB HBM3."
    )
    page = markdown(runs, [], tmp_path)
    assert "## NVIDIA H100 80GB HBM3 against NVIDIA H200" in page
    cells = [
        cell.strip() for cell in next(line for line in page.splitlines() if line.startswith("| matmul")).split("|")
    ]
    assert cells[1:-1] == ["matmul", "2", "0.929", "0.857", "1.000", "0.75", "0.60", "1"]


@pytest.mark.parametrize("speeds", [{"torch": 1.0, "triton": 1.02}, {"torch": 1.0, "triton": 1.0}])
def test_no_winner_changes_where_it_stays_or_intervals_overlap(tmp_path: Path, speeds: dict[str, float]) -> None:
    texts = [each.sentence for each in findings(cards(tmp_path, speeds))]
    assert any("a different winner than NVIDIA H200 in 0 of 1 cases." in text for text in texts)


def test_the_spread_between_gpus_is_named_with_its_largest_row(tmp_path: Path) -> None:
    rows = square()
    for place, each in enumerate(rows[:3]):
        each.gpus, each.gpu_spread = 2, 0.01 * (1 + place)
    assert any(text.startswith(
        "3 rows were timed on up to 2 GPUs: the slowest takes 2.0% more time than the fastest (median), 3.0% at most "
        f"(matmul M=N=K=1024 bf16 {rows[2].implementation}"
    ) for text in sentences(tmp_path / "with", rows))  # fmt: skip
    assert not any("GPUs:" in text for text in sentences(tmp_path / "without", square()))
