"""Groups the options of a command in the panels of its help."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args

from typer.models import OptionInfo

COMPARE: Mapping[str, Sequence[str]] = {
    "": ("operations", "op", "impl", "files", "dtype", "shape", "inputs", "device", "no_time", "out", "quiet"),
    "What to compare": ("exclude", "baseline", "reference", "kernelbench", "gpumode"),
    "Sizes and inputs": ("sweep", "shapes_file", "model", "tokens", "weights", "precision", "seed"),
    "Measuring": (
        "cache",
        "sustained",
        "min_time",
        "samples",
        "max_noise",
        "repeat",
        "timeout",
        "gpus",
        "cluster",
        "insecure",
        "transfers",
        "compiles",
    ),
    "Looking inside": ("profile", "count", "dump", "once"),
    "Output": ("columns", "sort", "wide", "as_json", "file_format", "strict", "publish", "force", "commit"),
    "Resume": ("resume",),
}
TUNE: Mapping[str, Sequence[str]] = {
    "": ("operations", "op", "impl", "dtype", "shape", "device"),
    "Sizes and inputs": ("shapes_file", "precision", "seed"),
    "Measuring": ("min_time", "samples", "timeout"),
}
"""The parameters of `compare` and of `tune` by panel. Those without a title are the ones that everybody needs first."""
OF_OPERATIONS = "Sizes and inputs"
"""The panel of the options that operations declare, which are not listed above."""


def in_panels(command: Callable[..., None], panels: Mapping[str, Sequence[str]], rest: str) -> Callable[..., None]:
    """The command with its options in panels, in this order. `rest` is the panel of options that no panel lists."""
    given = inspect.signature(command).parameters
    listed = [name for names in panels.values() for name in names]
    places = {name: title for title, names in panels.items() for name in names}
    titles = list(panels)
    order = sorted(given, key=lambda name: (titles.index(places.get(name, rest)), _place(name, listed)))

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        command(**arguments)

    parameters = [_in_panel(given[name], places.get(name, rest)) for name in order]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _place(name: str, listed: Sequence[str]) -> int:
    return listed.index(name) if name in listed else len(listed)


def _in_panel(parameter: inspect.Parameter, title: str) -> inspect.Parameter:
    """The parameter of an option whose help stands in the panel with this title."""
    kind, *more = get_args(parameter.annotation) or (parameter.annotation,)
    if not more or not isinstance(more[0], OptionInfo):
        return parameter
    information = copy.copy(more[0])
    information.rich_help_panel = title or None
    return parameter.replace(annotation=Annotated[kind, information])
