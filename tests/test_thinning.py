"""The covering set of combinations: every pair, few rows, and no preference for one value."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import thinning
from parity import test_parity as parity

from suite import ops
from suite.implementations import builtin


def all_pairs(rows: list[tuple[str, ...]]) -> set[object]:
    return set().union(*map(thinning.pairs, rows))


def test_every_pair_occurs_in_about_as_few_rows_as_two_columns_need() -> None:
    rows = [row for row in product("abcdefghij", "klmnopqrst", "uv") if row[:2] != ("a", "k")]
    kept = thinning.covering(rows)
    assert all_pairs(kept) == all_pairs(rows)
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


def test_the_first_parameter_set_of_each_function_stays() -> None:
    names = ("a.py::f[1]", "a.py::f[2]", "a.py::g", "b.py::f[1]", "a.py::f[3]")
    left_out = thinning.repeats([SimpleNamespace(nodeid=name) for name in names])
    assert [each.nodeid for each in left_out] == ["a.py::f[2]", "a.py::f[3]"]


def test_a_file_with_a_test_that_takes_long_has_others_too() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py")}
    marked = {path: text for path, text in files.items() if "\n@pytest.mark.all_cases" in text}
    assert marked
    assert all(text.count("\n@pytest.mark.all_cases") < text.count("\ndef test_") for text in marked.values())


def test_the_parity_tests_have_every_pair_that_can_run_and_the_option_has_all() -> None:
    every = parity.combinations(every=True, on_gpu=False)
    kept = parity.combinations(every=False, on_gpu=False)
    assert set(parity.combinations(every=False, on_gpu=True)) > set(every) > set(kept)
    assert len({row.case for row in every}) > 1000
    assert {(row.operation, row.implementation) for row in kept} == {
        (row.operation, row.implementation) for row in every
    }
    for name in ops.alone():
        on_a_gpu = {each.name for each in builtin.implementations(name) if each.requires}
        on_a_gpu |= {family for family, kind in ops.get(name).families.items() if kind.needs_gpu}
        of_one = [
            [row for row in rows if row.operation == name and not on_a_gpu & {row.implementation, row.inputs[0]}]
            for rows in (every, kept)
        ]
        assert all_pairs(of_one[1]) == all_pairs(of_one[0])
        least = {(row.inputs, row.implementation) for row in of_one[0]}
        assert len(least) <= len(of_one[1]) < 1.3 * len(least)


def test_each_test_of_an_implementation_calls_it_on_the_cases_of_its_family_and_dtype() -> None:
    for (name, family, dtype, implementation), calls in parity.calls_by_test(
        parity.combinations(every=True, on_gpu=False)
    ).items():
        expected = [case for case in ops.get(name).cases(family, "cpu", more=(dtype,)) if case.dtype == dtype]
        assert [call.case for call in calls] == expected
        assert {call.implementation for call in calls} == {implementation}
