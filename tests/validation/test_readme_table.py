"""The README's table has the numbers of the committed results."""

from __future__ import annotations

from suite import ops
from suite.core.paths import ROOT
from validation import readme_table


def test_the_readme_has_the_numbers_of_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = text.partition(readme_table.BEGIN)[2].partition(readme_table.END)[0]
    assert found == readme_table.table(), "python validation/readme_table.py --write"


def test_every_operation_with_results_has_a_case() -> None:
    named = [case[0] for case in readme_table.CASES]
    assert named == [name for name in ops.names() if name in named]
    assert set(named) >= {name for name in ops.names() if (readme_table.RESULTS / f"{name}.csv").exists()}
