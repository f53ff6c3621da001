"""Rows for the tests of `results`: one plain row, and any row."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from suite.results.row import COLUMNS, TYPES, Row


def row(implementation: str = "torch", **values: Any) -> Row:
    """A row of a matrix product. `values` are further columns."""
    return Row("matmul", "M=1,N=2,K=3", "float32", "ieee", implementation, **values)


TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)
_BY_TYPE = {
    str: TEXTS,
    bool: st.booleans(),
    int: st.integers(0, 2**63),
    int | None: st.none() | st.integers(0, 10**18),
    float | None: st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.just(math.inf),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Every value that a column of this type can have."""
    return st.sampled_from(list(kind)) if isinstance(kind, type) and issubclass(kind, StrEnum) else _BY_TYPE[kind]


ANY_ROW = st.builds(Row, **{name: values_of(TYPES[name]) for name in COLUMNS})
