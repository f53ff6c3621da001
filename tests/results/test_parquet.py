"""Results tables as Parquet: columns have exact types; a missing library is reported before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suite.core.errors import UsageError
from suite.results import parquet
from suite.results.row import Row


def test_a_missing_pyarrow_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="--format parquet: pyarrow not installed: pip install pyarrow"):
        parquet.check()


def test_a_table_has_the_types_of_its_columns(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow not installed: pip install pyarrow")
    import pandas as pd

    rows = [Row("matmul", "M=1,N=2,K=3", "float32", "ieee", name) for name in ("torch", "numpy")]
    rows[0].device_us, rows[0].samples = 2.5, 40
    parquet.write(tmp_path, rows)
    table = pd.read_parquet(tmp_path / "matmul.parquet")
    assert list(table["M"]) == [1, 1]
    assert list(table["device_us"].isna()) == [False, True]
    assert {str(table[name].dtype) for name in ("device_us", "vs_best", "error_ratio")} == {"float64"}
    assert table["samples"][0] == 40
    assert table["suspect"].dtype == bool
