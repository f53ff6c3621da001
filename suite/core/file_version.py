"""The version of a user's file: a digest of it and of the files beside it that it uses."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from suite.core.files import read_regular
from suite.core.paths import ROOT

MAX_BYTES, MAX_FILES = 16 << 20, 1000
"""Size of the largest helper that is read, and most helpers that are followed."""
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def digest_of(path: Path, source: bytes) -> str:
    """The version that rows show: the first digits of the SHA-256 of `source`, the contents of `path`.

    The digest covers the files beside it that it uses, directly or indirectly: modules that a `.py` imports, files that
    a `.cu` includes. It leaves out the headers of `cuda_ref/`.
    """
    everything = hashlib.sha256(source)
    uses: Callable[[Path, bytes, Path], Iterator[Path]] = _includes if path.suffix == ".cu" else _imports
    waiting, known = list(uses(path, source, path.parent)), {path}
    while waiting and len(known) <= MAX_FILES:
        helper = waiting.pop(0)
        if helper in known or helper.is_relative_to(ROOT / "cuda_ref"):
            continue
        known.add(helper)
        try:
            text = read_regular(helper, MAX_BYTES)
        except (OSError, ValueError):
            continue
        everything.update(f"\0{helper.name} {len(text)}\0".encode("utf-8", "backslashreplace") + text)
        waiting += uses(helper, text, path.parent)
    return everything.hexdigest()[:12]


def _includes(path: Path, source: bytes, folder: Path) -> Iterator[Path]:
    """The files that `#include "..."` finds beside `path`."""
    for match in INCLUDE.finditer(source):
        found = path.parent / match[1].decode("utf-8", "surrogateescape")
        if found.is_file():
            yield found.resolve()


def _imports(path: Path, source: bytes, folder: Path) -> Iterator[Path]:
    """The files that imports in a module find in `folder`, or in the package that `path` belongs to."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield from _files(folder, each.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            package = path.parents[min(node.level, len(path.parents)) - 1] if node.level else folder
            name = node.module.split(".") if node.module else []
            for each in node.names:
                yield from _files(package, [*name, each.name])


def _files(folder: Path, name: list[str]) -> Iterator[Path]:
    """The files that the import of a dotted name reads: its packages and the module."""
    for part in name:
        for found in (folder / f"{part}.py", folder / part / "__init__.py"):
            if found.is_file():
                yield found
        folder /= part
