"""Nights: a regression is two runs in a row beyond the interval; the site opens from a file; the command does all."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from diff.rows import folder
from diff.rows import run as suite
from report.browser import BINARY, browser
from report.rows import RECORD, row

from suite.cli import nightly as command
from suite.diff.load import load
from suite.hardware.device import Device
from suite.nightly.nights import NIGHTLY, judged, runs
from suite.nightly.site import write_site
from suite.report import html
from suite.report.plots import plots_of
from suite.results.row import Row

H200 = "NVIDIA H200"


def night(path: Path, day: int, *rows: Row, **record: Any) -> Path:
    date = {"date_utc": f"2026-11-{day:02}T01:00:00Z"}
    return folder(path / "runs" / f"2026-11-{day:02}T010000-{NIGHTLY}", list(rows), {**RECORD, **date, **record})


def rows(speed: float, *, wrong: bool = False) -> list[Row]:
    mine = row("cuda", status="wrong", reason="value: at [0]") if wrong else row("cuda", speed)
    mine.device_us = None if wrong else mine.device_us
    return [row("torch"), mine, row("triton", 0.95)]


@pytest.mark.parametrize(
    ("speeds", "found"),
    [
        ([1.0], []),
        ([1.0, 1.0], []),
        ([1.0, 0.8], ["slower once"]),
        ([1.0, 1.0, 0.8], ["slower once"]),
        ([1.0, 0.8, 0.8], ["regression"]),
        ([1.0, 0.8, 1.0], []),
        ([1.0, 0.8, 0.8, 0.8], []),
        ([0.8, 1.0, 0.8], ["slower once"]),
        ([1.0, 0.8, 0.6], ["regression"]),
        ([1.0, 1.1, 1.2], []),
    ],
)
def test_a_regression_is_two_runs_in_a_row_beyond_the_interval(
    speeds: list[float], found: list[str], tmp_path: Path
) -> None:
    for day, speed in enumerate(speeds, 1):
        night(tmp_path, day, *rows(speed))
    result = judged(runs(tmp_path, H200, pytest.fail, NIGHTLY), 0.03)
    assert [each.finding.value for each in result.noted] == found
    assert result.exit_status == (3 if "regression" in found else 0)
    assert all("cuda" in each.text and "of its speed" in each.text for each in result.noted)


def test_a_row_that_is_wrong_now_is_broken_at_once(tmp_path: Path) -> None:
    night(tmp_path, 1, *rows(1.0))
    night(tmp_path, 2, *rows(1.0, wrong=True))
    result = judged(runs(tmp_path, H200, pytest.fail, NIGHTLY), 0.03)
    assert [each.text for each in result.noted] == [
        "broken: matmul M=1024,N=1024,K=1024 bfloat16 ieee cuda, wrong: value: at [0]"
    ]
    assert result.exit_status == 3


def test_runs_of_other_cards_unfinished_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    night(tmp_path, 1, *rows(1.0))
    night(tmp_path, 2, *rows(1.0), device={"type": "cuda", "name": "NVIDIA A100"})
    night(tmp_path, 3, *rows(1.0), run={"complete": False})
    (night(tmp_path, 4, *rows(1.0)) / "matmul.csv").write_text("damaged", encoding="utf-8")
    folder(tmp_path / "runs" / "2026-11-05T010000-matmul", rows(1.0), RECORD)
    night(tmp_path, 6, *rows(1.0))
    said: list[str] = []
    found = runs(tmp_path, H200, said.append, NIGHTLY)
    assert [side.path.name[:10] for side in found] == ["2026-11-01", "2026-11-06"]
    assert len(said) == 1
    assert "2026-11-04" in said[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nights")
    for day, speed in enumerate([1.0, 0.8, 0.8], 1):
        night(place / "nvidia-h200", day, *rows(speed))
    other = folder(place / "h100", rows(1.0), {**RECORD, "device": {"type": "cuda", "name": "NVIDIA <H100>"}})
    with pytest.MonkeyPatch.context() as patch:  # drawing takes most of the time of a page
        patch.setattr(html, "plots_of", lambda run: list(plots_of(run))[:1])
        write_site([place / "nvidia-h200", other], place / "site", 0.03, pytest.fail)
    return place / "site"


def test_the_site_has_the_runs_of_each_device_their_pages_and_what_is_noted(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    assert "NVIDIA H200" in index
    assert "NVIDIA &lt;H100&gt;" in index
    assert "regression: matmul M=1024,N=1024,K=1024 bfloat16 ieee cuda, 0.8 of its speed" in index
    assert index.index("2026-11-03") < index.index("2026-11-02") < index.index("2026-11-01"), "the latest first"
    assert len(list(site.glob("*/*.html"))) == 4
    assert "\u2587" in index, "the history has sparklines"


def test_the_site_opens_from_any_web_server(site: Path) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/"
        with urlopen(place, timeout=100) as index:
            text = index.read().decode()
        links = [part.split('"')[0] for part in text.split('href="')[1:] if not part.startswith("data:")]
        assert len(links) == 4
        for link in links:
            with urlopen(place + link, timeout=100) as page:
                assert page.status == 200
        server.shutdown()


@pytest.mark.skipif(BINARY is None, reason="needs Chromium or Chrome")
def test_the_site_opens_from_a_file_in_a_browser(site: Path) -> None:
    with browser() as page:
        page.open(site / "index.html")
        assert page.js("document.querySelectorAll('tbody a').length") == 4
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
        linked = page.js("document.querySelector('tbody a').getAttribute('href')")
        page.open(site / linked)
        assert "NVIDIA" in page.js("document.title")
        assert all(url.startswith(("file:", "data:")) for url in page.requests)
        assert page.complaints == []


@pytest.mark.thorough
def test_the_command_compares_judges_and_writes_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def compare(arguments: list[str]) -> int:
        asked.append(arguments)
        night(tmp_path, 10 + len(asked), *rows(1.0 if len(asked) == 1 else 0.8))
        return 0

    monkeypatch.setattr(command, "_compare", compare)
    monkeypatch.setattr(command, "resolve", lambda text: Device("cuda", name=H200))
    arguments = ["nightly", "--results", tmp_path, "--site", tmp_path / "public", "--op", "matmul"]
    assert [suite(monkeypatch, *arguments) for _ in range(3)] == [0, 0, 3]
    assert asked[0][:2] == ["--op", "matmul"]
    printed = capsys.readouterr()
    assert "regression: matmul" in printed.out
    assert (tmp_path / "public" / "index.html").is_file()
    assert suite(monkeypatch, *arguments, "--out", tmp_path) == 2
    assert suite(monkeypatch, *arguments, "--threshold", "7") == 2
    assert len(asked) == 3, "nothing ran that could not be judged"


def test_a_night_of_other_rows_is_not_compared_and_the_site_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other arguments than the night before are no reason to lose the night."""
    days = iter(range(1, 9))
    written: list[Any] = []
    monkeypatch.setattr("suite.nightly.site.write_site", lambda *given: written.append(given) or ["a site"])

    def compare(arguments: list[str]) -> int:
        day = next(days)
        night(tmp_path, day, *([row("torch", case="M=8,N=8,K=8")] if day == 1 else rows(0.8 if day > 2 else 1.0)))
        return 0

    monkeypatch.setattr(command, "_compare", compare)
    monkeypatch.setattr(command, "resolve", lambda text: Device("cuda", name=H200))
    assert [suite(monkeypatch, "nightly", "--results", tmp_path) for _ in range(4)] == [0, 0, 0, 3]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "against the night before: the first night"
    assert "no row in common" in printed[1]
    assert any(line.startswith("slower once: matmul") for line in printed)
    assert [folders for folders, *_ in written] == [[tmp_path]] * 4


def test_an_interrupted_night_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of an interrupted run names --resume."""
    asked: list[list[str]] = []
    monkeypatch.setattr(command, "_compare", lambda arguments: asked.append(arguments) or 0)
    monkeypatch.setattr("suite.nightly.site.write_site", lambda *_: ["no site: one takes two seconds"])
    monkeypatch.setattr(command, "resolve", lambda text: Device("cuda", name=H200))
    whole = night(tmp_path, 1, *rows(1.0))
    part = night(tmp_path, 2, *rows(1.0), run={"complete": False})
    suite(monkeypatch, "nightly", "--results", tmp_path, "--op", "matmul", "--resume")
    suite(monkeypatch, "nightly", "--results", tmp_path, "--op", "matmul")
    assert asked[0] == ["--op", "matmul", "--device", "cuda:0", "--out", str(part), "--resume"]
    assert "--resume" not in asked[1]
    assert str(part) not in asked[1]
    (part / "environment.json").write_text((whole / "environment.json").read_text(encoding="utf-8"), encoding="utf-8")
    suite(monkeypatch, "nightly", "--results", tmp_path, "--resume")
    assert asked[2][:4] == ["--op", "all", "--repeat", "3"]
    assert "--resume" not in asked[2], "the last night is complete"


@pytest.mark.slow(seconds=30)
def test_a_night_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--op", "vector_add", "--shape", "N=1000", "--dtype", "float32", "--impl", "torch", "--quiet"]
    assert suite(monkeypatch, "nightly", "--device", "cpu", "--results", tmp_path, *small) == 0
    assert "against the night before: the first night" in capsys.readouterr().out
    (only,) = (tmp_path / "runs").glob(f"*-{NIGHTLY}")
    assert len(load(only).rows) == 1
    assert (tmp_path / "site" / "index.html").is_file()
