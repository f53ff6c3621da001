"""Finds series: cases of one operation that differ only in one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from suite.report.load import Entry


@dataclass(frozen=True)
class Series:
    """Rows of one operation, dtype, precision, options and kind of device, in which one size varies."""

    operation: str
    arithmetic: str
    title: str
    axis: str
    """The dimensions that vary together: `M = N = K`."""
    by_size: dict[int, list[Entry]]

    def lines(self) -> dict[str, list[Entry]]:
        """The rows of each implementation, one for each size, in order of size."""
        found: dict[str, list[Entry]] = {}
        for size in sorted(self.by_size):
            seen = set()
            for entry in self.by_size[size]:
                if entry.row.implementation not in seen:
                    seen.add(entry.row.implementation)
                    found.setdefault(entry.row.implementation, []).append(entry)
        return found

    def size_of(self, entry: Entry) -> int:
        return entry.dims[self.axis.partition(" ")[0]]


def series_of(entries: Sequence[Entry], least: int = 2) -> Iterator[Series]:
    """The series in `entries` that have at least `least` sizes. Cases that fit no series are left out."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.dims:
            groups.setdefault((*_problem(entry), *_equal_dimensions(entry)), []).append(entry)
    for group in groups.values():
        for series in _split(group, least):
            yield _completed(series, entries)


def _problem(entry: Entry) -> tuple[str, ...]:
    return (entry.row.operation, entry.arithmetic, entry.options, str(entry.row.device == "cpu"))


def _equal_dimensions(entry: Entry) -> tuple[str, ...]:
    """The first dimension of the same size, for each dimension: M, N, K = 8, 4, 8 gives M, N, M."""
    first: dict[int, str] = {}
    return tuple(first.setdefault(size, name) for name, size in entry.dims.items())


def _completed(series: Series, entries: Sequence[Entry]) -> Series:
    """The series with the cases in which further dimensions happen to be equal: N=1024 of M=1024, if N varies."""
    first = next(iter(series.by_size.values()))[0]
    tied = series.axis.split(" = ")
    others = {name: size for name, size in first.dims.items() if name not in tied}
    by_size = {size: list(rows) for size, rows in series.by_size.items()}
    for entry in entries:
        dims = entry.dims
        if _problem(entry) == _problem(first) and dims.keys() == first.dims.keys():
            size = dims[tied[0]]
            fits = all(dims[name] == size for name in tied) and all(dims[name] == others[name] for name in others)
            if fits and size not in series.by_size:
                by_size.setdefault(size, []).append(entry)
    return replace(series, by_size=by_size)


def _split(group: Sequence[Entry], least: int) -> Iterator[Series]:
    """The series of each set of equal dimensions: rows that agree in all other dimensions."""
    ties = _equal_dimensions(group[0])
    used: set[int] = set()
    for leader in dict.fromkeys(ties):
        tied = [name for name, tie in zip(group[0].dims, ties, strict=True) if tie == leader]
        fixed: dict[tuple[int, ...], list[Entry]] = {}
        for entry in group:
            rest = tuple(size for name, size in entry.dims.items() if name not in tied)
            fixed.setdefault(rest, []).append(entry)
        for members in fixed.values():
            by_size: dict[int, list[Entry]] = {}
            for entry in members:
                by_size.setdefault(entry.dims[leader], []).append(entry)
            if len(by_size) >= least and not used & {id(entry) for entry in members}:
                used |= {id(entry) for entry in members}
                others = [f"{name}={size}" for name, size in members[0].dims.items() if name not in tied]
                title = " ".join(filter(None, (group[0].arithmetic, group[0].options, *others)))
                yield Series(group[0].row.operation, group[0].arithmetic, title, " = ".join(tied), by_size)
