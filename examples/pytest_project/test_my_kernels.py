"""The project's kernels agree with float64, within error bounds that follow from the arithmetic, and get no slower."""

import pytest
from my_kernels import my_matmul, my_sigmoid

from kernel_suite.suite.problem.case import Case
from kernel_suite.testing import NoSlower, assert_agrees, cases, title


def test_my_sigmoid() -> None:
    assert_agrees(my_sigmoid, "sigmoid", (1000,), dtype="float16")


@pytest.mark.parametrize("case", cases("matmul", inputs="telling", dtypes=["float32", "bfloat16"]), ids=title)
def test_my_matmul_on_what_the_usual_sizes_hide(case: Case) -> None:
    try:
        assert_agrees(my_matmul, "matmul", case)
    except NotImplementedError as refused:
        pytest.skip(str(refused))


@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 33, 17), (3, 128, 200)], ids=str)
def test_my_matmul_on_ragged_sizes(shape: tuple[int, int, int]) -> None:
    assert_agrees(my_matmul, "matmul", shape, dtype="float32")


def test_my_sigmoid_is_no_slower_than_before(assert_no_slower: NoSlower) -> None:
    assert_no_slower(my_sigmoid, "sigmoid", (1_000_000,), dtype="float32")
