"""A results folder: `<operation>.csv`, `<operation>.md` rendered from it, and `environment.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suite import report
from suite.errors import ResultsError
from suite.table import Row, read_csv, to_csv, write_atomically


class Results:
    """Writes the rows of a run as they come; each file is replaced whole, none is touched before the first row."""

    def __init__(self, folder: Path, environment: dict[str, Any]) -> None:
        self.folder = folder
        self.environment = environment
        self.rows: dict[str, list[Row]] = {}
        if folder.exists() and not folder.is_dir():
            raise ResultsError(f"--out {folder} is a file; give a folder")

    def add(self, operation: str, rows: list[Row]) -> None:
        """Append the rows of one case and bring the operation's files up to date."""
        first = not self.rows
        self.rows.setdefault(operation, []).extend(rows)
        if first:
            write_atomically(self.folder / "environment.json", json.dumps(self.environment, indent=2) + "\n")
        path = self.folder / f"{operation}.csv"
        write_atomically(path, to_csv(self.rows[operation]))
        write_atomically(path.with_suffix(".md"), report.markdown(read_csv(path), self.environment))
