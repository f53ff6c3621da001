"""The README's table has a case of each operation with results."""

from __future__ import annotations

from suite import ops
from validation.documents import readme


def test_every_operation_with_results_has_a_case() -> None:
    named = [case[0] for case in readme.CASES]
    assert named == [name for name in ops.names() if name in named]
    assert set(named) >= {name for name in ops.names() if (readme.RESULTS / f"{name}.csv").exists()}
