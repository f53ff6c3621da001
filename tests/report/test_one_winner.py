"""Star, sentence, chart, Markdown, page and plots name the same winner, whatever the rows."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from report.rows import entries

from suite.report.ranking import Outcome, grouped, ranked_cases
from suite.results import render
from suite.results.groups import standing
from suite.results.noise import mark_noisy
from suite.results.render.chart import chart_lines
from suite.results.render.overview import findings, overview_lines
from suite.results.row import Row

VENDORS = {"torch": "PyTorch", "jax": "XLA", "numpy": "NumPy"}
NAMES = (*VENDORS, "triton", "triton/split", "cuda", "cuda/tiled")
TIMES = st.floats(10.0, 1000.0).map(lambda us: round(us, 1)) | st.sampled_from((100.0, 101.0, 105.0, 120.0, 200.0))
WIDTHS = st.sampled_from((0.001, 0.01, 0.04, 0.06, 0.122, 0.5, 3.0, None))
DRIFT = st.sampled_from((1.0, 0.999, 1.001, 0.9, 1.1, 2.0))


@st.composite
def case_rows(draw: st.DrawFn, case: str = "M=64,N=64,K=64") -> list[Row]:
    """Rows as a run has them: one vendor row is the reference, and ratios may contradict times."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    rows = []
    for name in names:
        us, width = draw(TIMES), draw(WIDTHS)
        ends: dict[str, Any] = {}
        if width is not None:
            ends = {"device_us_low": us / (1 + width), "device_us_high": us * (1 + width)}
        row = Row("matmul", case, "float32", "ieee", name, device="cpu", device_us=us, recorder="wall", **ends)
        row.vendor = VENDORS.get(name, "")
        rows.append(row)
    vendors = [row for row in rows if row.vendor]
    if vendors:
        best = (
            draw(st.sampled_from(vendors)) if draw(st.booleans()) else min(vendors, key=lambda row: row.device_us or 0)
        )
        for row in rows:
            ratio = 1.0 if row is best else (best.device_us or 1.0) / (row.device_us or 1.0) * draw(DRIFT)
            spread = 1.0 if row is best else draw(st.sampled_from((1.001, 1.02, 1.5)))
            row.vs_best, row.vs_best_low, row.vs_best_high = ratio, ratio / spread, ratio * spread
    mark_noisy(rows, 0.05)
    return rows


@settings(max_examples=300, deadline=None)
@given(case_rows())
def test_all_name_the_same_winner(rows: list[Row]) -> None:
    found = standing(rows)
    name = found.winner.implementation if found.winner is not None else None
    lines = [line.plain for line in render.case_lines(rows, 200)]
    starred = [line.split()[0] for line in lines if re.match(r"\S+ \* ", line)]
    assert starred == ([name] if name else [])
    bold = re.findall(r"\*\*(.+?)\*\*", render.markdown(rows, {}))
    assert [each.replace("\\", "") for each in bold] == starred
    charted = [str(line.plain).split()[0] for line in chart_lines(rows, 120) if line.style == "bold"][1:]
    assert set(charted) <= set(starred)
    (result,) = ranked_cases(entries(rows))
    assert (result.fastest.row.implementation if result.fastest else None) == name
    listed = [group.results[0].fastest for group in grouped([result])]
    assert listed == ([result.fastest] if found.timed else [])
    if found.winner is not None:
        framework = name.partition("/")[0]
        assert result.best_of(framework) is result.fastest
        assert result.vendor is None or not found.winner.vendor or (found.ratio(found.winner) or 1.0) >= 1.0


@settings(max_examples=300, deadline=None)
@given(case_rows())
def test_sentences_do_not_contradict_the_star(rows: list[Row]) -> None:
    found, sentences = standing(rows), findings(rows)
    (result,) = ranked_cases(entries(rows))
    if sentences:
        name, ratio = re.match(r"matmul fp32: (\S+) is ([\d.,]+)x ", sentences[0]).groups()
        own = found.best(lambda row: row.is_ours)
        assert own.implementation == name
        assert result.other is None or result.other.row is own
        if found.winner is not None and found.winner.is_ours:
            assert found.winner is own
        if found.winner is found.vendor and found.winner is not None:
            assert float(ratio.replace(",", "")) <= 1.0
            assert result.outcome is not Outcome.FASTER
    if found.vendor is None:
        assert not sentences
        assert result.outcome is Outcome.NONE


@settings(max_examples=100, deadline=None)
@given(case_rows(), case_rows("M=128,N=64,K=64"))
def test_the_table_of_all_cases_names_the_winner_of_each(first: list[Row], second: list[Row]) -> None:
    lines = [line.plain for line in overview_lines([*first, *second], 240)]
    for rows in (first, second):
        found = standing(rows)
        shown = [line for line in lines if f"M={rows[0].case[2:].partition(',')[0]}," in line.partition("  ")[0]]
        if found.winner is not None and lines and lines[0] == "all cases" and shown:
            assert shown[0].split("  ")[1].strip() == found.winner.implementation
