"""The covering set of combinations: every pair, few rows, and no preference for one value."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import thinning
from parity import test_parity as parity

from suite import ops


def test_every_pair_occurs_in_about_as_few_rows_as_two_columns_need() -> None:
    rows = [row for row in product("abcdefghij", "klmnopqrst", "uv") if row[:2] != ("a", "k")]
    kept = thinning.covering(rows)
    assert set().union(*map(thinning.pairs, kept)) == set().union(*map(thinning.pairs, rows))
    assert 99 <= len(kept) <= 102
    assert min(Counter(row[2] for row in kept).values()) > 30
    assert kept == sorted(kept) == thinning.covering(rows)


def test_every_value_occurs_in_as_few_rows_as_the_longest_column_needs() -> None:
    rows = list(product("abcdef", "klmn", "uv"))
    kept = thinning.covering_values(rows)
    assert [set(column) for column in zip(*kept, strict=True)] == [set(column) for column in zip(*rows, strict=True)]
    assert len(kept) == 6


def test_every_part_occurs_in_fewer_items() -> None:
    texts = [f"{kernel} {dtype} {size}" for kernel, dtype, size in product("ab", "cde", "fg")]
    kept = thinning.covering_parts(texts, lambda text: set(text.split()))
    assert set(" ".join(kept).split()) == set(" ".join(texts).split())
    assert len(kept) == 3
    assert kept == sorted(kept)


def test_crossed_values_are_all_there_and_each_stays_once(monkeypatch: pytest.MonkeyPatch) -> None:
    letters, numbers = {"a": "A", "b": "B", "c": "C"}, thinning.named([1, 2])
    for gpu, stay in (("", 3), ("NVIDIA H200", 6)):
        monkeypatch.setenv("SUITE_TEST_GPU", gpu)
        sets: list[Any] = thinning.crossed(letters, numbers)
        assert {each.id: each.values for each in sets} == {
            f"{letter}-{number}": (letter.upper(), number) for letter in "abc" for number in (1, 2)
        }
        kept = [each.values for each in sets if not each.marks]
        assert len(kept) == stay
        assert [{*column} for column in zip(*kept, strict=True)] == [{"A", "B", "C"}, {1, 2}]


def test_the_first_parameter_set_of_each_function_stays() -> None:
    names = ("a.py::f[1]", "a.py::f[2]", "a.py::g", "b.py::f[1]", "a.py::f[3]")
    left_out = thinning.repeats([SimpleNamespace(nodeid=name) for name in names])
    assert [each.nodeid for each in left_out] == ["a.py::f[2]", "a.py::f[3]"]


def test_the_parity_tests_that_are_chosen_have_every_part_in_few_calls() -> None:
    rows = parity.combinations(on_gpu=False)
    kept = parity.chosen(rows)
    assert set(parity.combinations(on_gpu=True)) > set(rows) > kept
    for name in ops.alone():
        all_, few = (
            [row for row in found if row.operation == name and not parity.needs_gpu(row)] for found in (rows, kept)
        )
        assert set().union(*map(parity.parts, few)) == set().union(*map(parity.parts, all_))
        for column in ("inputs", "dtype", "choice", "implementation"):
            assert {getattr(row, column) for row in few} == {getattr(row, column) for row in all_}
    assert len(kept) < 0.4 * len(rows)


def test_each_test_of_an_implementation_calls_it_on_the_cases_of_its_family_and_dtype() -> None:
    for (name, family, dtype, implementation), calls in parity.calls_by_test(parity.combinations(on_gpu=True)).items():
        expected = [case for case in ops.get(name).cases(family, "cuda", more=(dtype,)) if case.dtype == dtype]
        assert [call.case for call in calls] == expected
        assert {call.implementation for call in calls} == {implementation}
