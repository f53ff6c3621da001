"""Number formats: largest numbers, bytes, units in the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.numerics import formats
from suite.numerics.formats import DTYPES, DTYPES_BEYOND, ulp


@pytest.mark.parametrize("dtype", [*DTYPES, *DTYPES_BEYOND])
def test_the_tables_say_what_torch_says(dtype: str) -> None:
    info = torch.finfo(getattr(torch, dtype))
    assert formats.MAX_FINITE[dtype] == info.max
    assert formats.element_bytes(dtype) * 8 == info.bits
    assert 2.0 ** formats.MIN_EXPONENT[dtype] == info.smallest_normal
    assert 2.0 ** (1 - formats.SIGNIFICANT_BITS[dtype]) == info.eps
    assert formats.unit_roundoff(dtype) == info.eps / 2
    assert formats.half_smallest(dtype) == max(info.smallest_normal * info.eps / 2, math.ulp(0.0))


@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_ulp_is_numpy_spacing(x: float) -> None:
    value = torch.tensor([x], dtype=torch.float64)
    assert float(ulp(value, "float32")) == float(np.spacing(np.float32(abs(x))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x", [0.0, 1.0, 1.5, 3.999, 1e-6, 65000.0])
def test_ulp_separates_neighbours(dtype: str, x: float) -> None:
    here = torch.tensor([x], dtype=getattr(torch, dtype))
    integer = torch.int32 if dtype == "float32" else torch.int16
    above = (here.view(integer) + 1).view(here.dtype)
    assert float(ulp(here.double(), dtype)) == float(above.double() - here.double())
