"""The covering set of combinations: every pair, few rows, and no preference for one value."""

from __future__ import annotations

from collections import Counter
from itertools import product

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


def test_every_word_occurs_in_fewer_texts() -> None:
    texts = [f"{kernel} {dtype} {size}" for kernel, dtype, size in product("ab", "cde", "fg")]
    kept = thinning.covering_words(texts)
    assert set(" ".join(kept).split()) == set(" ".join(texts).split())
    assert len(kept) == 3
    assert kept == sorted(kept)


def test_the_parity_tests_have_every_pair_that_can_run_and_the_option_has_all() -> None:
    every = parity.combinations(every=True, on_gpu=False)
    kept = parity.combinations(every=False, on_gpu=False)
    assert set(parity.combinations(every=False, on_gpu=True)) > set(every) > set(kept)
    assert {(row[0], row[3]) for row in kept} == {(row[0], row[3]) for row in every}, "each implementation"
    for name in ops.alone():
        on_a_gpu = {each.name for each in builtin.implementations(name) if each.requires}
        on_a_gpu |= {family for family, kind in ops.get(name).families.items() if kind.needs_gpu}
        of_one = [[row for row in rows if row[0] == name and not on_a_gpu & set(row)] for rows in (every, kept)]
        assert all_pairs(of_one[1]) == all_pairs(of_one[0])
        least = {(row[1], row[3]) for row in of_one[0]}  # each implementation with each family
        assert len(least) <= len(of_one[1]) < 1.1 * len(least)
