"""The form of JAX's arrays is read without a tensor."""

from __future__ import annotations

import pytest

from suite import frameworks
from suite.frameworks.base import Adapter


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3)])
def test_the_form_of_an_array_is_that_of_its_tensor(shape: tuple[int, ...], dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    adapter, array = frameworks.get("jax"), jnp.zeros(shape, dtype)
    assert adapter.form(array) == Adapter.form(adapter, array)
