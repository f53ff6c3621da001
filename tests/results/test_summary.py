"""The end of a whole run: the matrix of operations, failures, and the line of a case in a pipe."""

from __future__ import annotations

from typing import Any

import pytest

from suite.results.render import matrix_lines
from suite.results.render.failures import failure_lines
from suite.results.render.summary import exit_status, progress_line
from suite.results.row import Row

OPERATIONS = ("vector_add", "multi_head_attention", "linear_sigmoid_grad")
FRAMEWORKS = ("triton", "cuda", "jax", "torch", "numpy", "with")


def row(operation: str, implementation: str, us: float | None = None, ratio: float | None = None, **more: Any) -> Row:
    times = {"device_us": us, "device_us_low": us, "device_us_high": us, "vs_best": ratio, "recorder": "cupti"}
    return Row(
        operation, more.pop("case", "N=64"), "float32", "ieee", implementation, **({"device": "cuda:0"} | times | more)
    )


def rows_of(operation: str) -> list[Row]:
    reason = "value: at [0] got 1, expected 2"
    torch = row(operation, "torch", 10.0, 1.0, vendor="PyTorch", vs_best_low=1.0, vs_best_high=1.0)
    return [
        row(operation, "triton", 10.2, 0.98),
        row(operation, "triton/persistent", 9.5, 1.05),
        row(operation, "triton/noisy", 5.0, 2.0, noisy=True, device_us_low=4.0, device_us_high=12.0),
        row(operation, "cuda", status="wrong", reason=reason),
        row(operation, "cuda/wgmma", status="unsupported"),
        row(operation, "jax", status="unavailable"),
        torch,
        row(operation, "numpy", status="timeout"),
        row(operation, "with/mine", 1000.0, 0.01),
    ]


def test_the_matrix_has_counts_and_best_ratios_in_80_columns() -> None:
    rows = [each for operation in OPERATIONS for each in rows_of(operation)]
    lines = [line.plain for line in matrix_lines(rows, 80)]
    assert max(map(len, lines)) <= 80
    table = lines[next(place for place, line in enumerate(lines) if line.startswith("operation  ")) :]
    assert len(table) == 1 + 2 * len(OPERATIONS), "one block of columns"
    assert table[0].split() == ["operation", *FRAMEWORKS]
    for operation, counts, ratios in zip(OPERATIONS, table[1::2], table[2::2], strict=True):
        assert counts.split() == [operation, "3/0/0", "0/1/1", "0/0/1", "1/0/0", "0/1/0", "1/0/0"]
        assert ratios.split() == ["1.05", "1.00", "0.0100"]
    assert "best ratio vs best vendor" in " ".join(" ".join(lines).split())


def test_the_matrix_of_a_large_run_fits_too() -> None:
    rows = [
        row(operation, framework, 10.0, 0.987, case=f"N={number}", status="ok" if number % 2 else "unsupported")
        for operation in OPERATIONS
        for framework in FRAMEWORKS[:5]
        for number in range(200)
    ]
    lines = [line.plain for line in matrix_lines(rows, 80)]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("operation  ") for line in lines) == 1


def test_without_times_there_are_counts_alone_and_one_operation_has_no_matrix() -> None:
    rows = [row(operation, "torch") for operation in OPERATIONS]
    lines = [line.plain for line in matrix_lines(rows, 80)]
    assert [line.split() for line in lines[-3:]] == [[operation, "1/0/0"] for operation in OPERATIONS]
    assert "best ratio" not in " ".join(lines)
    assert matrix_lines(rows_of("matmul"), 80) == []


@pytest.mark.parametrize(
    ("more", "strict", "text"),
    [
        ({"status": "wrong", "reason": "why"}, False, "vector_add N=64 fp32: torch wrong: why"),
        ({"status": "error", "reason": "why", "diagnosis": "x"}, False, "vector_add N=64 fp32: torch error: why; x"),
        ({"suspect": True}, False, "vector_add N=64 fp32: torch suspect: faster than the device can be"),
        ({"weakness": "b changes nothing"}, True, "vector_add N=64 fp32: torch weak: b changes nothing"),
        ({"weakness": "b changes nothing"}, False, None),
        ({"status": "unsupported"}, True, None),
        ({}, True, None),
    ],
)
def test_what_fails_is_what_sets_the_exit_status(more: dict[str, Any], strict: bool, text: str | None) -> None:
    rows = [row("vector_add", "numpy"), row("vector_add", "torch", **more)]
    assert failure_lines(rows, 80, strict=strict) == ([] if text is None else [text])
    assert exit_status(rows, strict=strict) == (0 if text is None else 1)


def test_a_long_reason_is_folded_and_not_cut() -> None:
    lines = failure_lines([row("vector_add", "torch", status="wrong", reason="word " * 60)], 80)
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("word") == 60


def test_the_line_of_a_case() -> None:
    assert progress_line(rows_of("softmax")) == (
        "softmax N=64 fp32: 5 ok, 1 wrong (cuda), 1 unavailable, 1 timeout (numpy)"
    )
    assert progress_line([row("softmax", "cuda", status="unsupported")]) == ""
