"""Messages about unknown names: the valid ones, and at most three that are near."""

from __future__ import annotations

import pytest

from suite.core.names import LISTED, did_you_mean, nearest, unknown

OPERATIONS = ("vector_add", "matrix_add", "matmul", "softmax", "attention", "attention_grad", "multi_head_attention")


@pytest.mark.parametrize(
    ("given", "valid", "near"),
    [
        ("matmull", OPERATIONS, ["matmul"]),
        ("MatMul", OPERATIONS, ["matmul"]),
        ("*atmu*", OPERATIONS, ["matmul"]),
        ("gluon", ("triton", "triton/gluon", "cuda/tiled"), ["triton/gluon"]),
        ("attentoin", OPERATIONS, ["attention", "attention_grad"]),
        ("zzz", OPERATIONS, []),
        ("a", ["a1", "a2", "a3", "a4"], ["a1", "a2", "a3"]),
    ],
)
def test_the_nearest_names(given: str, valid: tuple[str, ...], near: list[str]) -> None:
    assert nearest(given, valid) == near


def test_a_short_list_is_shown_whole_with_what_is_near() -> None:
    assert unknown("fp61", ["float32", "float16"], also=["fp32", "fp16"]) == (
        "unknown 'fp61'; valid are float32, float16; did you mean fp16?"
    )
    assert unknown("x", ["ncu"]) == "unknown 'x'; valid is ncu"
    assert did_you_mean("attention_gard", OPERATIONS) == "; did you mean attention_grad or attention?"


def test_of_a_long_list_the_nearest_three_are_shown_however_far() -> None:
    many = [f"column_{number}" for number in range(LISTED)] + ["code"]
    text = unknown("foo", many, see="docs/results.md")
    assert text.startswith("unknown 'foo'; the nearest are ")
    assert text.count(",") == 2
    assert text.endswith("; docs/results.md has all")
