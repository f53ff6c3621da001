"""The plots of a report. Each module has a function that yields the plots for which a run has data."""

from suite.report.plots.all import plots_of
from suite.report.plots.figure import Plot, data_of, is_plot

__all__ = ["Plot", "data_of", "is_plot", "plots_of"]
