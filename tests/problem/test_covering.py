"""A covering set: every pair of levels occurs, in few valid rows, and every level in the first of them."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from suite.problem.covering import cover

FACTORS = {"M": (1, 31, 64, 257, 1024), "N": (1, 31, 64, 257, 1024), "K": (1, 31, 257), "layout": ("nn", "nt", "tt")}


def pairs(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(one, row[one], two, row[two]) for row in rows for one, two in combinations(FACTORS, 2)}


def test_every_pair_occurs_in_about_as_few_rows_as_the_two_largest_factors_need() -> None:
    rows = cover(FACTORS, lambda row: 1.0)
    everything = [dict(zip(FACTORS, levels, strict=True)) for levels in product(*FACTORS.values())]
    assert pairs(rows) == pairs(everything)
    assert 25 <= len(rows) <= 30
    assert rows == cover(FACTORS, lambda row: 1.0), "the same at every call"


def test_every_pair_that_a_valid_row_has_occurs_and_no_other_row() -> None:
    def cost(row: dict[str, Any]) -> float | None:
        return row["M"] * row["N"] if row["M"] * row["N"] * row["K"] < 10_000 else None

    rows = cover(FACTORS, cost)
    everything = [dict(zip(FACTORS, levels, strict=True)) for levels in product(*FACTORS.values())]
    valid = [row for row in everything if cost(row) is not None]
    assert all(row in valid for row in rows)
    assert pairs(rows) == pairs(valid)


def test_the_first_rows_have_every_level() -> None:
    rows = cover(FACTORS, lambda row: 1.0)[:7]
    assert all({row[name] for row in rows} == set(levels) for name, levels in FACTORS.items())


def test_added_levels_are_in_pairs_with_all_others_and_pairs_without_them_do_not_count() -> None:
    rows = cover(FACTORS, lambda row: 1.0, {"K": (131,)})
    everything = [dict(zip(FACTORS, levels, strict=True)) for levels in product(*FACTORS.values())]
    assert {pair for pair in pairs(rows) if ("K", 131) in (pair[:2], pair[2:])} == {
        pair for pair in pairs([{**row, "K": 131} for row in everything]) if ("K", 131) in (pair[:2], pair[2:])
    }
    assert [row["K"] for row in rows] == [131] * 5
