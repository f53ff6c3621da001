"""Rows of older tables get today's names, which are names of implementations; other tables are unchanged."""

from __future__ import annotations

import pytest

from suite.implementations import builtin
from suite.results.row import Mode, Row, Status
from validation.documents.earlier_names import RENAMED, renamed


def row(operation: str, implementation: str, case: str = "", config: str = "") -> Row:
    return Row(
        operation=operation,
        case=case,
        dtype="bfloat16",
        precision="ieee",
        implementation=implementation,
        execution=Mode.NATIVE,
        status=Status.OK,
        config=config,
    )


def names(rows: list[Row]) -> list[str]:
    return [each.implementation for each in renamed(rows)]


@pytest.mark.parametrize("operation", RENAMED)
def test_the_names_of_today_are_implementations(operation: str) -> None:
    assert {*filter(None, RENAMED[operation].values())} <= {each.name for each in builtin.implementations(operation)}


def test_an_older_table_gets_the_names_of_today() -> None:
    assert names([row("softmax", each) for each in ("cuda", "cuda/passes", "cuda/cluster", "torch")]) == [
        "cuda/registers",
        "cuda",
        "cuda/cluster",
        "torch",
    ]
    assert names([row("multi_head_attention", each) for each in ("cuda", "cuda/wgmma")]) == ["cuda/auto"]


def test_a_table_with_a_name_of_today_is_unchanged() -> None:
    assert names([row("softmax", each) for each in ("cuda", "cuda/registers")]) == ["cuda", "cuda/registers"]
    assert names([]) == []


def test_attention_in_triton_ran_a_kernel_for_each_kind_of_case() -> None:
    cases = [("S_q=1,S_k=8192,D=128", "BLOCK_M=64"), ("S_q=4096,D=128", ""), ("S_q=4096,D=128,causal", "BLOCK_M=64")]
    assert names([row("attention", "triton", case, config) for case, config in cases]) == [
        "triton/parts",
        "triton/specialized",
        "triton/packed",
    ]
