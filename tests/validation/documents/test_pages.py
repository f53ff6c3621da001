"""Every page has the numbers of the committed results, and a changed number is found."""

from __future__ import annotations

import re

import pytest
from thinning import thorough_unless

from validation.documents import Document, documents, tables

PAGES = documents()
LONG = {"several_gpus", "readme", "frameworks", "model_operations"}
"""Pages on which the search for a number that the tool replaces takes seconds."""


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_the_numbers_of_the_results(name: str) -> None:
    text = PAGES[name].PAGE.read_text(encoding="utf-8")
    assert PAGES[name].filled(text) == text, "python -m validation.documents --write"


def is_replaced(page: Document, text: str, number: re.Match[str]) -> bool:
    """Return True if the tool replaces a wrong number at this place by that of the results."""
    other = re.sub(r"\d", lambda digit: str(9 - int(digit[0])), number[0])
    try:
        return page.filled(text[: number.start()] + other + text[number.end() :]) == text
    except (LookupError, SystemExit, ValueError):  # it is a size of a case
        return False


@pytest.mark.parametrize("name", [pytest.param(name, marks=thorough_unless(name not in LONG)) for name in PAGES])
def test_another_number_is_replaced(name: str) -> None:
    text = PAGES[name].PAGE.read_text(encoding="utf-8")
    numbers = reversed(list(re.finditer(r"(?<=[ (])\d[\d,]*(?:\.\d+)?(?=[ ,;)%])", text)))
    assert any(is_replaced(PAGES[name], text, number) for number in numbers)


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
