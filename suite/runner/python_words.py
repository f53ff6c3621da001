"""Makes a function for Python's callers: accepts the usual other names of arguments, and words errors for Python.

The runner's messages name options of the command line. A caller from Python reads the names of arguments instead.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from suite import ops
from suite.core.errors import SuiteError, UsageError
from suite.core.names import did_you_mean

FLAG = re.compile(r"--([a-z][a-z-]*)(?:/--no-[a-z-]+)?")
WORDS = {
    "dtype": "dtypes",
    "exclude": "exclude",
    "force": "force=True",
    "format": "formats",
    "impl": "implementations",
    "no-time": "timed=False",
    "op": "operation",
    "open": "open=True",
    "out": "out=...",
    "precision": "precisions",
    "shape": "shapes",
    "sweep": "sweep=True",
    "with": "files",
}
"""Arguments of `suite.compare` and `suite.report` that are not called like the option of the command line."""
SINGLE = {"dtype": "dtype", "precision": "precision", "shape": "size"}
"""The same for functions that take a single case."""
ALIASES = (
    ("shapes", "shape", "sizes", "size", "case"),
    ("dtypes", "dtype"),
    ("precisions", "precision"),
    ("implementations", "implementation", "impl"),
    ("operation", "operations", "op"),
    ("files", "file"),
    ("formats", "format"),
    ("inputs", "input"),
)
"""Groups of names of the same argument: a function that has one of them takes the others too."""

P = ParamSpec("P")
R = TypeVar("R")


def for_python(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with other names for its arguments, and with its errors in Python's words.

    It raises `UsageError` for an argument that it does not have, and for one that is given under two names.
    """
    parameters = inspect.signature(function).parameters
    words = WORDS if "shapes" in parameters or "formats" in parameters else WORDS | SINGLE

    @functools.wraps(function)
    def wrapper(*args: P.args, **given: P.kwargs) -> R:
        with in_python_words(words):
            return function(*args, **_renamed(function.__name__, parameters, given))  # type: ignore[arg-type]

    return wrapper


@contextmanager
def in_python_words(words: Mapping[str, str] = WORDS) -> Iterator[None]:
    """Rewrite the message of an error of this package: `--no-time` becomes `timed=False`."""
    try:
        yield
    except SuiteError as error:
        error.args = (translated(str(error), words), *error.args[1:])
        raise


def translated(text: str, words: Mapping[str, str] = WORDS) -> str:
    """`text` with the names of Python's arguments instead of the command line's options."""
    return FLAG.sub(lambda found: words.get(found[1]) or _argument(found[1]), text)


def _argument(flag: str) -> str:
    name = flag.replace("-", "_")
    return f"{name.removeprefix('no_')}=False" if name.startswith("no_") else name


def _renamed(function: str, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords with the names that `parameters` have. Raises `UsageError` as `for_python` says."""
    options = {option.name for operation in ops.names() for option in ops.options(operation)}
    takes_options = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD]
    found: dict[str, Any] = {}
    for name, value in given.items():
        group = next((group for group in ALIASES if name in group), ())
        chosen = name if name in known else next((each for each in group if each in known), name)
        if chosen in found:
            raise UsageError(f"{function}: {chosen} is given under two names; give it once")
        if chosen not in known and not (takes_options and chosen in options):
            meant = did_you_mean(name, [*known, *(options if takes_options else ())])
            raise UsageError(f"{function} has no argument {name!r}{meant}")
        found[chosen] = value
    return found
