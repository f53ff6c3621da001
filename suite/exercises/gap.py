"""The gap of a file: the lines between a comment that begins with `TODO:` and the comment `END`."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

MARK = r"^[ \t]*(?://|#)[ \t]*"
GAP = re.compile(
    rf"(?P<todo>{MARK}TODO: .*\n(?:{MARK}(?!END\b).*\n)*)(?P<code>(?:.*\n)*?)(?P<end>{MARK}END\b)", re.MULTILINE
)
COMMENTS = {".cu": re.compile(r"/\*[\s\S]*?\*/|//.*"), ".py": re.compile(r"#.*")}


@dataclass(frozen=True)
class Gap:
    """A gap: its task, the line of the task, and the code in it."""

    task: str
    line: int
    code: str


def gap(text: str) -> Gap | None:
    """The gap of a file; None if its marks are gone."""
    found = GAP.search(text)
    if found is None:
        return None
    task = re.sub(MARK, "", found["todo"], flags=re.MULTILINE)
    return Gap(" ".join(task.split()).removeprefix("TODO: "), text.count("\n", 0, found.start()) + 1, found["code"])


def is_empty(text: str, suffix: str) -> bool:
    """True for a file without code, or without code in its gap. suffix: of the file, `.cu` or `.py`."""
    found = gap(text)
    return not _without_comments(text if found is None else found.code, suffix).strip()


def emptied(text: str) -> str:
    """The file with an empty gap: the exercise that belongs to an answer."""
    return GAP.sub(lambda found: found["todo"] + found["end"], text, count=1)


def words(text: str, suffix: str) -> str:
    """The code of a file that is executed, without comments; for a `.py` only its names."""
    if suffix != ".py":
        return _without_comments(text, suffix)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(each.string for each in tokens if each.type == tokenize.NAME)


def _without_comments(text: str, suffix: str) -> str:
    return COMMENTS[suffix].sub(" ", text)
