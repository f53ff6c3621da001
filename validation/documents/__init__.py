"""Pages with numbers of committed results: a module for each page, and the tool that fills them all.

python -m validation.documents             # prints lines that differ from the results, exits with 1 if there are any
python -m validation.documents --write     # writes the numbers of the results into the pages

A module has `PAGE`, the page's path, and `filled(text)`, the page with the numbers of the results. Texts, links and
the names of implementations are written by hand, unless the module makes the whole table.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Protocol, cast

ROOT = Path(__file__).resolve().parents[2]
HELPERS = {"__main__", "attention_limits", "earlier_names", "model_targets", "rows", "tables"}
"""Modules of this folder that fill no page."""


class Document(Protocol):
    """A page with numbers of committed results."""

    PAGE: Path

    def filled(self, text: str) -> str:
        """Return the page with the numbers of the results."""
        ...


def documents() -> dict[str, Document]:
    """The pages, by the names of their modules."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if found.name not in HELPERS]
    return {name: cast(Document, importlib.import_module(f"{__name__}.{name}")) for name in names}
