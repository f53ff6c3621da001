"""Every page has the numbers of the committed results, and a changed number is found."""

from __future__ import annotations

import re

import pytest

from validation.documents import documents, tables

PAGES = documents()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_the_numbers_of_the_results(name: str) -> None:
    text = PAGES[name].PAGE.read_text(encoding="utf-8")
    assert PAGES[name].filled(text) == text, "python -m validation.documents --write"


@pytest.mark.parametrize("name", PAGES)
def test_another_number_in_a_table_is_replaced(name: str) -> None:
    """Change each number with a fraction in the page's tables: at least one comes from the results."""
    text = PAGES[name].PAGE.read_text(encoding="utf-8")
    changed = tables.TABLE.sub(lambda table: re.sub(r"(?<=[ (])\d+\.\d+(?=[ )])", "9.87", table[0]), text)
    sentences = re.sub(r"\b\d+\.\d\d+\b", "9.87", text)
    assert PAGES[name].filled(changed) != changed or PAGES[name].filled(sentences) != sentences


def test_a_page_without_its_table_or_sentence_says_which() -> None:
    with pytest.raises(SystemExit, match=r"no table with the heads \[\['us'\]\]"):
        tables.with_tables("| a |\n|---|\n| 1 |\n", {frozenset({"us"}): lambda lines: None})
    with pytest.raises(SystemExit, match="no sentence like"):
        tables.with_sentences("a page without numbers\n", [(r"takes (\d+) us", ["1"])])
    with pytest.raises(SystemExit, match="no part between"):
        tables.with_marked("a page without marks\n", "")


def test_a_sentence_is_found_over_a_line_break_and_without_a_result_stays() -> None:
    assert tables.with_sentences("It takes 1\nus.", [(r"takes (\d+) us", ["23"])]) == "It takes 23\nus."
    assert tables.with_sentences("It takes 1 us.", [(r"takes (\d+) us", [""])]) == "It takes 1 us."
