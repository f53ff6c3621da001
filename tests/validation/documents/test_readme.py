"""The README's tables have a case of each operation with results."""

from __future__ import annotations

from suite import ops
from validation.documents import readme
from validation.documents.rows import H100, H200


def test_every_operation_with_results_has_a_case() -> None:
    named, newer = ([case[0] for case in cases] for cases in (readme.CASES, readme.CASES_H100))
    for each in (named, newer):
        assert each == [name for name in ops.names() if name in each]
    assert set(named) >= {name for name in ops.names() if (H200 / f"{name}.csv").exists()}
    assert set(newer) == {path.name for path in (H100 / "operations").iterdir()}
