"""Integer arithmetic."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suite.core.integers import index_at


@given(st.lists(st.integers(1, 5), max_size=5), st.data())
def test_an_index_is_that_of_row_major_order(shape: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, math.prod(shape) - 1))
    assert index_at(place, shape) == tuple(map(int, np.unravel_index(place, shape)))
