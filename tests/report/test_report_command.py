"""`report` writes the formats asked for, replaces no foreign file, and reproduces the committed reports."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from diff.rows import assert_one_error, folder
from diff.rows import run as suite
from report.rows import RECORD, failed, row, square

from suite.core.paths import ROOT
from suite.report.load import load_runs, priced
from suite.report.markdown import MADE_BY, markdown
from suite.report.plots import Plot, data_of, plots_of
from suite.report.tables import rows_table
from suite.report.write import PLOTS, README, named_plots, write

COMMITTED = [path.parent for path in sorted((ROOT / "results").glob(f"*/{README}"))]
SCREEN = 60
"""Lines of a README at most."""
HOSTILE = "</script><img src=x onerror=alert(1)>|`x`"


@pytest.fixture
def one_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have one plot: drawing takes most of their time."""
    keep_plots(monkeypatch, lambda plots: plots[:1])


def keep_plots(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[list[Plot]], list[Plot]]) -> None:
    """Reports have the chosen ones of their plots."""
    for module in ("suite.report.write", "suite.report.html"):
        monkeypatch.setattr(import_module(module), "plots_of", lambda run: chosen(list(plots_of(run))))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return folder(tmp_path / "run", [*square(), failed("numpy", "error", reason=HOSTILE)], RECORD)


@pytest.mark.usefixtures("one_plot")
def test_the_page_is_one_file_without_addresses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path
) -> None:
    assert suite(monkeypatch, "report", results) == 0
    page = results / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert 'src="http' not in text
    assert 'href="http' not in text
    for part in ("NVIDIA H200", "cuda/wgmma", "0bad107093101b77", "python -m suite compare --op all"):
        assert part in text


def test_every_format_is_written_to_the_folder_that_is_given(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path
) -> None:
    keep_plots(monkeypatch, lambda plots: plots[-2:])
    out = tmp_path / "out"
    assert suite(monkeypatch, "report", results, "--format", "html,md,png", "--out", out) == 0
    assert {path.name for path in out.iterdir()} == {"report.html", README, PLOTS}
    plots = {path.name for path in (out / PLOTS).iterdir()}
    assert {name.removesuffix(".svg") for name in plots if name.endswith(".svg")} == {
        name.removesuffix(".png") for name in plots if name.endswith(".png")
    }
    assert len(plots) == 4
    text = (out / README).read_text(encoding="utf-8")
    assert "<img" not in text
    assert "](report.html)" in text
    assert all(f"]({PLOTS}/{name})" in text for name in plots if name.endswith(".svg"))


FOREIGN = {
    README: ("md", "a report"),
    "report.html": ("html,md", "a report"),
    f"{PLOTS}/*.svg": ("md", "a plot"),
    f"{PLOTS}/*.png": ("png", "a plot"),
}


@pytest.mark.usefixtures("one_plot")
@pytest.mark.parametrize("pattern", FOREIGN)
def test_a_file_of_someone_else_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path, pattern: str
) -> None:
    """A report replaces one of its own, but no other file; it then writes nothing."""
    formats, what = FOREIGN[pattern]
    for _ in range(2):
        assert suite(monkeypatch, "report", results, "--format", formats) == 0
    capsys.readouterr()
    path = next(results.glob(pattern))
    for each in results.glob(pattern):
        each.unlink()
    path.write_text("mine", encoding="utf-8")
    before = {each: each.stat().st_mtime_ns for each in results.rglob("*")}
    assert suite(monkeypatch, "report", results, "--format", formats) == 2
    assert_one_error(capsys, f"{path} is not {what} of this suite and is left alone; give another folder with --out")
    assert path.read_text(encoding="utf-8") == "mine"
    assert {each: each.stat().st_mtime_ns for each in results.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--format", "pdf"], "unknown 'pdf'; valid are html, md, png, svg"),
        (["--format", "md", "--open"], "add html"),
    ],
    ids=["unknown_format", "open_without_a_page"],
)
def test_what_cannot_be_written_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path, arguments: list[str],
    complaint: str,
) -> None:  # fmt: skip
    assert suite(monkeypatch, "report", results, *arguments) == 2
    assert_one_error(capsys, complaint)


@pytest.mark.usefixtures("one_plot")
def test_open_shows_the_page(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: shown.append(address) or True)
    assert suite(monkeypatch, "report", results, "--open") == 0
    assert shown == [(results / "report.html").resolve().as_uri()]


def test_columns_without_a_value_and_of_one_value_are_not_shown(results: Path) -> None:
    heads = {each["head"]: each for each in rows_table(load_runs([results]))["columns"]}
    assert "kernels" not in heads
    assert heads["run"]["detail"]
    assert not heads["device us"]["detail"]
    assert None in heads["device us"]["values"]
    assert heads["samples"]["whole"]
    assert not heads["vs best vendor"]["whole"]


def test_a_noisy_row_has_its_time_and_no_ratio(tmp_path: Path) -> None:
    noisy = row("numpy", 3.0, noisy=True, device_us_high=100.0, kernels_run="copy [1 x 32]")
    run = folder(tmp_path / "run", [*square(), noisy], RECORD)
    heads = {each["head"]: each for each in rows_table(load_runs([run]))["columns"]}
    assert heads["vs best vendor"]["values"][-1] is None
    assert heads["device us"]["values"][-1] == 33.333
    assert heads["status"]["texts"] == ["ok", "ok, noisy"]
    assert heads["kernels"]["texts"] == ["", "copy [1 x 32]"]


def test_an_infinite_error_is_a_text_in_the_page(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", [row(error_ratio=float("inf"), status="wrong")], RECORD)
    heads = {each["head"]: each for each in rows_table(load_runs([run]))["columns"]}
    assert heads["error / bound"]["values"] == ["inf"]


@pytest.mark.usefixtures("one_plot")
def test_a_plot_that_is_no_more_in_the_report_goes_and_no_other_file(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", square(), RECORD)
    plots = run / PLOTS
    write(load_runs([run]), ["md"], run)
    kept = next(plots.iterdir())
    (plots / "rate-gone.svg").write_bytes(kept.read_bytes())
    (plots / "mine.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    (plots / "broken.svg").write_text("<svg", encoding="utf-8")
    write(load_runs([run]), ["md"], run)
    assert kept.exists()
    assert not (plots / "rate-gone.svg").exists()
    assert (plots / "mine.svg").exists()
    assert (plots / "broken.svg").exists()


def test_a_readme_is_one_screen_and_links_to_the_page_and_the_tables(results: Path) -> None:
    (results / "matmul.md").write_text("a table", encoding="utf-8")
    for written, page in ("", f"report {results} --open"), ("report.html", "](report.html)"):
        text = markdown(load_runs([results]), [], results, written)
        assert page in text
        assert "](matmul.md)" in text
        assert "](environment.json)" in text
        assert len(text.splitlines()) < SCREEN


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_readme_is_one_screen_whose_links_lead_to_files(path: Path) -> None:
    text = (path / README).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= SCREEN
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert [link for link in links if not (path / link).is_file()] == []


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_what_is_committed_is_what_report_writes(path: Path) -> None:
    """Text is compared byte by byte, plots by their data. `python -m suite report PATH --format md` updates one."""
    runs = load_runs([path])
    named = named_plots(runs)
    text = markdown(runs, [(plot, f"{PLOTS}/{name}.svg") for plot, name in named], path)
    assert (path / README).read_text(encoding="utf-8") == text
    assert text.startswith(MADE_BY)
    assert {each.stem for each in (path / PLOTS).iterdir()} == {name for _, name in named}
    for plot, name in named:
        assert data_of((path / PLOTS / f"{name}.svg").read_bytes()) == plot.data, name


def test_of_several_folders_one_without_results_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path
) -> None:
    """`report results/*`: not every device's folder has a table of its own."""
    (tmp_path / "without" / "proof").mkdir(parents=True)
    monkeypatch.setattr(import_module("suite.report.write"), "named_plots", lambda runs: [])
    assert suite(monkeypatch, "report", tmp_path / "without", results, "--format", "md", "--out", tmp_path / "out") == 0
    assert capsys.readouterr().err == f"left out: {tmp_path / 'without'}: no results here\n"
    assert suite(monkeypatch, "report", tmp_path / "without") == 2


def test_a_price_gives_costs_and_without_one_nothing_is_said_of_them(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path
) -> None:
    """A call of 100 us at 36 an hour costs 1 for a million calls, and 10^18 flops an hour are 1 / 36 of that each."""
    (run,) = load_runs([results])
    assert all(entry.cost is None and entry.tflop_per_unit is None for entry in run.entries)
    assert "cost" not in {plot.name for plot in plots_of(run)}
    (with_price,) = priced([run], [36.0])
    entry = next(each for each in with_price.entries if each.timed and each.row.device_us == 100.0)
    assert entry.cost == pytest.approx(1.0)
    assert entry.tflop_per_unit == pytest.approx(100.0 * (entry.row.tflops or 0.0))
    keep_plots(monkeypatch, lambda plots: [plot for plot in plots if plot.name == "cost"])
    assert (
        suite(monkeypatch, "report", results, "--format", "html,svg", "--out", tmp_path, "--price-per-hour", "36") == 0
    )
    assert "cost of 10^6 calls" in (tmp_path / "report.html").read_text(encoding="utf-8")
    bars = data_of((tmp_path / PLOTS / "cost.svg").read_bytes())["bars"]
    assert min(cost for *_, cost in bars) < 1.0


@pytest.mark.parametrize("price", ["much", "1,2", "-3"])
def test_a_price_that_is_none_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path, price: str
) -> None:
    assert suite(monkeypatch, "report", results, f"--price-per-hour={price}") == 2
    assert_one_error(capsys, "price-per-hour")
