"""Collects all plots of one run, in the order of a report."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.load import Run
from suite.report.plots import bars, cost, error_maps, heat, host, intensity, lanes, rates, roofline
from suite.report.plots.figure import Plot
from suite.report.ranking import ranked_cases


def plots_of(run: Run) -> Iterator[Plot]:
    """The plots for which the run has data, those of wrong rows first.

    Only `cpu-against-gpu` shows rows of a GPU's host.
    """
    entries = run.entries
    own = run.on_its_device
    results = ranked_cases(own)
    yield from error_maps.error_maps(entries)
    yield from lanes.against_vendors(results)
    yield from rates.rate_against_size(own)
    yield from roofline.roofline(run, own)
    yield from intensity.against_intensity(results)
    yield from heat.heat_maps(results)
    yield from bars.steps(results)
    yield from host.cpu_against_gpu(entries)
    yield from host.small_calls(results)
    yield from lanes.energy(results)
    yield from cost.cost_of_calls(results)
    yield from lanes.errors(own)
