"""Errors of vector_add, matrix_add and matmul in JAX, PyTorch and NumPy name the argument."""

from __future__ import annotations

import pytest
from impls_common import Implementation, implementations, normal


@pytest.mark.parametrize("parameters", implementations("vector_add", "matrix_add", "matmul"))
@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (3, 4, 1)), ((12,), (3, 4)), ((3, 4), (3,)), ((3,), (4,)), ((3, 4), (5, 3))]
)
def test_shape_errors_name_the_argument(
    parameters: tuple[str, str, str], a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    with pytest.raises(
        ValueError, match=rf"^{parameters[1]}: (a must be \(.*\); got \(|a is \(.*, so b must be \(.*; got \()"
    ):
        Implementation(*parameters)(normal(*a), normal(*b))


@pytest.mark.parametrize("parameters", implementations("vector_add", "matrix_add", "matmul"))
def test_dtype_errors_name_the_argument(parameters: tuple[str, str, str]) -> None:
    x = normal(*((4,) if parameters[1] == "vector_add" else (4, 4)))
    with pytest.raises(ValueError, match="a is float32, so b must be float32; got float16"):
        Implementation(*parameters)(x, x.half())
    with pytest.raises(
        ValueError, match=r"a must be float32, float16, bfloat16(, float8_e4m3fn)? or float64; got int32"
    ):
        Implementation(*parameters)(x.int(), x.int())
