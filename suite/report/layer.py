"""Computes the time of a model's layer by implementation: the sum of each shape's time times its count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from suite.core.errors import UsageError
from suite.models.workload import LayerShape, Workload, kept_in
from suite.report.load import Entry, Run, entries_of
from suite.report.style import sort_key
from suite.report.wording import duration
from suite.results.row import Row

FASTEST, VENDOR = "the fastest for each shape", "vendor libraries"


@dataclass(frozen=True)
class Part:
    """One shape of the layer, with the timed rows of its case."""

    shape: LayerShape
    entries: Sequence[Entry]

    @property
    def pick(self) -> Entry | None:
        return _fastest(self.entries)

    def fastest_of(self, framework: str) -> Entry | None:
        return _fastest([each for each in self.entries if each.framework == framework])

    def us(self, entry: Entry | None) -> float | None:
        """The time of `entry` in a layer, in us: its time times the count. None if there is no entry."""
        return None if entry is None or entry.row.device_us is None else self.shape.count * entry.row.device_us


@dataclass(frozen=True)
class Choice:
    """An implementation or a rule that picks one for each shape, and its time in a layer."""

    name: str
    us: float


@dataclass(frozen=True)
class Layer:
    """A layer in one dtype and arithmetic."""

    run: str
    workload: Workload
    arithmetic: str
    parts: Sequence[Part]

    @property
    def frameworks(self) -> list[str]:
        return sorted({entry.framework for part in self.parts for entry in part.entries}, key=sort_key)

    @property
    def missing(self) -> list[str]:
        """Shapes without any time."""
        return [f"{part.shape.name} ({part.shape.operation} {part.shape.case})" for part in self.parts if not part.pick]

    @property
    def noisy(self) -> int:
        """Number of shapes whose fastest time is noisy."""
        return sum(part.pick is not None and part.pick.row.noisy for part in self.parts)

    @property
    def whole_layer(self) -> list[Choice]:
        """The whole layer with the fastest implementation of each shape: of all, of vendors, and of each framework.

        The fastest choice comes first. A choice that lacks a shape is left out.
        """
        found = [(FASTEST, [part.pick for part in self.parts])]
        vendors = [[each for each in part.entries if each.row.vendor] for part in self.parts]
        found.append((VENDOR, [_fastest(each) for each in vendors]))
        found += [(name, [part.fastest_of(name) for part in self.parts]) for name in self.frameworks]
        choices = [Choice(name, us) for name, picks in found if (us := _sum(self.parts, picks)) is not None]
        return sorted(choices, key=lambda each: each.us)

    def choices(self, operation: str) -> list[Choice]:
        """The implementations that have times for all shapes of an operation, with the sum, the fastest first."""
        parts = [part for part in self.parts if part.shape.operation == operation]
        names = dict.fromkeys(entry.row.implementation for part in parts for entry in part.entries)
        found = []
        for name in names:
            picks = [_fastest([each for each in part.entries if each.row.implementation == name]) for part in parts]
            us = _sum(parts, picks)
            if us is not None:
                found.append(Choice(name, us))
        return sorted(found, key=lambda each: each.us)

    @property
    def operations(self) -> list[str]:
        return list(dict.fromkeys(part.shape.operation for part in self.parts))

    @property
    def sentences(self) -> list[str]:
        """Sentences on the implementations to choose, and on the time that they save."""
        if self.missing:
            return [f"There is no time of {'; '.join(self.missing)}: no sum of the layer."]
        by_name = {each.name: each for each in self.whole_layer}
        best, vendor = self.whole_layer[0], by_name.get(VENDOR)
        text = f"A layer takes {duration(best.us)} with {best.name}"
        if vendor is not None and vendor is not best:
            text += f" and {duration(vendor.us)} with {VENDOR} alone, {vendor.us / best.us:.3f} times as long"
        texts = [f"{text}; {self.workload.layers} layers take {duration(self.workload.layers * best.us)}."]
        picked = [(name, choices[0]) for name in self.operations if (choices := self.choices(name))]
        if len(picked) == len(self.operations):
            names = ", ".join(f"{choice.name} for {name}" for name, choice in picked)
            total = sum(choice.us for _, choice in picked)
            texts.append(f"With one implementation for each operation it takes {duration(total)}: {names}.")
        if self.noisy:
            texts.append(f"{self.noisy} of these times are noisy.")
        return texts


def layers(runs: Sequence[Run]) -> Iterator[Layer]:
    """The layers of each folder with a workload, one for each dtype and arithmetic.

    Raises `UsageError` for a damaged record.
    """
    for run, folder in [(each, part) for each in runs for part in each.parts]:
        try:
            workloads = kept_in(folder.environment)
        except UsageError as error:
            raise UsageError(f"{folder.path}: the workload in its environment record is damaged: {error}") from None
        for workload in workloads:
            yield from _layers(workload, folder.on_its_device, run.label)


def _layers(workload: Workload, entries: Iterable[Entry], run: str) -> Iterator[Layer]:
    """A layer for each arithmetic of the shapes without a dtype of their own. Other shapes are parts of each layer."""
    timed: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.timed:
            timed.setdefault((entry.row.operation, entry.row.case), []).append(entry)
    found = [Part(each, timed.get((each.operation, each.case), [])) for each in workload.shapes]
    own = [replace(each, entries=[e for e in each.entries if e.row.dtype == each.shape.dtype]) for each in found]
    shared = [part for part in found if not part.shape.dtype]
    for arithmetic in _arithmetics(shared) or _arithmetics(own):
        parts = [
            part if part.shape.dtype else replace(each, entries=[e for e in each.entries if e.arithmetic == arithmetic])
            for part, each in zip(own, found, strict=True)
        ]
        yield Layer(run, workload, arithmetic, parts)


def _arithmetics(parts: Iterable[Part]) -> list[str]:
    return list(dict.fromkeys(entry.arithmetic for part in parts for entry in part.entries))


def layers_of(workloads: Sequence[Workload], rows: Sequence[Row]) -> list[Layer]:
    """The layers of `workloads`, one for each of these and each dtype and arithmetic, from the rows of a run."""
    entries = entries_of(rows, "", "", {row.device: "" for row in rows})
    return [layer for each in workloads for layer in _layers(each, entries, "")]


def _fastest(entries: Sequence[Entry]) -> Entry | None:
    """The fastest entry, noisy or not, so that no choice of a layer is faster than the fastest of each shape."""
    return min(entries, key=lambda entry: entry.row.device_us or 0.0, default=None)


def _sum(parts: Sequence[Part], picks: Sequence[Entry | None]) -> float | None:
    times = [part.us(entry) for part, entry in zip(parts, picks, strict=True)]
    known = [us for us in times if us is not None]
    return sum(known) if len(known) == len(times) else None
