"""Writes the error maps of wrong rows as images: `maps/<operation>-<case>-...-<implementation>.png`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from suite.core.files import write_atomically
from suite.report.plots.error_maps import error_map, file_stem
from suite.report.plots.figure import is_plot
from suite.results.replacing import MAPS
from suite.results.row import Row


def write_maps(folder: Path, rows: Iterable[Row]) -> list[Path]:
    """Write the map of every wrong row to the run's folder, and remove maps of an earlier run of its operations.

    Raises `ResultsError` if a file cannot be written.
    """
    rows = list(rows)
    for operation in {row.operation for row in rows}:
        for old in (folder / MAPS).glob(f"{operation}-*.png"):
            if is_plot(old.read_bytes()):
                old.unlink(missing_ok=True)
    written = []
    for row in rows:
        plot = error_map(row)
        if plot is not None:
            path = folder / MAPS / f"{file_stem(row)}.png"
            write_atomically(path, plot.file("png"))
            written.append(path)
    return written
