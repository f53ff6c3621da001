"""Properties that hold for any two runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.diff.judge import judge
from suite.results.row import Row
from tests.diff.rows import VENDORS, as_side, judged, ranked, row, tables, times


@settings(deadline=None, max_examples=100)
@given(tables(), st.floats(0.001, 0.5))
def test_a_table_and_itself_differ_in_nothing(rows: list[Row], threshold: float) -> None:
    found = judge(as_side(rows), as_side(rows), threshold)
    assert {change.verdict for change in found.changes} <= {"SAME", "AMBIGUOUS", "UNTIMED"}
    assert found.exit_status == 0
    assert all(change.ratio is None or change.ratio.value == 0 for change in found.changes)


OPPOSITE = {"FASTER": "SLOWER", "SLOWER": "FASTER", "BROKEN": "FIXED", "FIXED": "BROKEN"}


@settings(deadline=None, max_examples=150)
@given(st.data(), st.floats(0.001, 0.5))
def test_swapping_the_runs_swaps_the_verdicts(data: st.DataObject, threshold: float) -> None:
    base = data.draw(tables())
    new = data.draw(tables(frozenset(row.implementation for row in base)))
    there, back = judged(base, new, threshold), judged(new, base, threshold)
    for name, change in there.items():
        other = back[name]
        assert other.verdict == OPPOSITE.get(change.verdict, change.verdict)
        assert (other.evidence, other.control) == (change.evidence, change.control)
        if change.ratio is not None:
            assert other.ratio is not None
            assert other.ratio.value == pytest.approx(-change.ratio.value)
            assert (other.ratio.low, other.ratio.high) == pytest.approx((-change.ratio.high, -change.ratio.low))


@settings(deadline=None, max_examples=50)
@given(times, st.floats(0, 0.1), st.sampled_from([2.0, 0.5]))
def test_twice_the_time_is_slower_and_half_is_faster(found: dict[str, float], width: float, factor: float) -> None:
    """Without vendor rows, all rows have this verdict. With a vendor row, only that row has it: for the others, the
    change cannot be distinguished from drift."""
    ours = {name: us for name, us in found.items() if name not in VENDORS}
    verdict = "SLOWER" if factor == 2 else "FASTER"
    base, new = ([row(name, us * by, width) for name, us in ours.items()] for by in (1.0, factor))
    if ours:
        assert {change.verdict for change in judged(base, new).values()} == {verdict}
    if len(ours) == len(found):
        return
    scaled = {name: us * factor for name, us in found.items()}
    changes = judged(ranked(found, width), ranked(scaled, width))
    expected = {name: "AMBIGUOUS" if change.control else verdict for name, change in changes.items()}
    assert {name: change.verdict for name, change in changes.items()} == expected
    assert verdict in expected.values()


@settings(deadline=None, max_examples=50)
@given(times.filter(lambda found: "triton" in found and "jax" in found), st.floats(0, 0.05))
def test_a_kernel_that_takes_twice_as_long_as_before_is_slower(found: dict[str, float], width: float) -> None:
    """Only our own lines change; the vendors' lines stay the same."""
    scaled = {name: us if name in VENDORS else 2 * us for name, us in found.items()}
    changes = judged(ranked(found, width), ranked(scaled, width), 0.2)
    for name, change in changes.items():
        assert change.verdict == ("SAME" if name in VENDORS else "SLOWER")
        assert change.evidence == ("vs_best" if change.control else "device_us")
