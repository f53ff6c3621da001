"""Fills the tables and the sentences of a page. It is an error if the page has lost one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
BEGIN, END = "<!-- table:begin -->\n", "<!-- table:end -->\n"
"""Marks around a part of a page that is generated as a whole."""
Line = dict[str, str]
"""Cells of a line by their column head; a repeated head has a 2 appended."""
Fill = Callable[[Sequence[Line]], None]
"""Sets the cells of a table's lines that have numbers of the results."""


def with_tables(text: str, fills: Mapping[frozenset[str], Fill]) -> str:
    """Fill each table by the function for its column heads. Other tables stay as they are."""
    used: set[frozenset[str]] = set()

    def filled(found: re.Match[str]) -> str:
        head, rule, *body = found[0].splitlines()
        heads, *cells = ([cell.strip() for cell in _cells(line)] for line in (head, *body))
        names = [each if each not in heads[:i] else f"{each} 2" for i, each in enumerate(heads)]
        needed = next((needed for needed in fills if needed <= set(names)), None)
        if needed is None:
            return found[0]
        used.add(needed)
        lines = [dict(zip(names, line, strict=True)) for line in cells]
        fills[needed](lines)
        return "\n".join([head, rule, *("| " + " | ".join(line.values()) + " |" for line in lines)]) + "\n"

    text = TABLE.sub(filled, text)
    if missing := [sorted(heads) for heads in fills if heads not in used]:
        raise SystemExit(f"no table with the heads {missing}; change its module in validation/documents")
    return text


def _cells(line: str) -> list[str]:
    return line.strip().removeprefix("|").removesuffix("|").split("|")


def with_sentences(text: str, sentences: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Fill sentences, each a pattern with a group for each number. A space of a pattern stands for any white space.

    A sentence with an empty number, which has no result, stays as it is.
    """
    for pattern, numbers in sentences:
        found = re.search(pattern.replace(" ", r"\s+"), text)
        if found is None:
            raise SystemExit(f"no sentence like {pattern!r}; change its module in validation/documents")
        for position, number in reversed(list(enumerate(numbers, 1)) if all(numbers) else []):
            text = text[: found.start(position)] + number + text[found.end(position) :]
    return text


def with_marked(text: str, part: str) -> str:
    """Replace what stands between the marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"no part between {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}{part}{END}{after}"


def name_of(line: Line) -> str:
    """The implementation at the start of a line's first cell, as code or as a link; empty without one."""
    found = re.match(r"(?:\*\*)?(?:\[([\w/]+)\]|`([\w/]+)`|([\w/]+)$)", next(iter(line.values())))
    return next(filter(None, found.groups()), "") if found else ""
