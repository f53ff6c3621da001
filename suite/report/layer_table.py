"""Tables of a model's layer at the end of a run: its time by choice, and the fastest implementation of each part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.report.layer import Choice, Layer, Part
from suite.results.render.layout import Field, table, wrapped

if TYPE_CHECKING:
    from rich.text import Text


def layer_tables(layers: Sequence[Layer], width: int) -> list[Text | str]:
    """The lines of both tables for each dtype and arithmetic, with a column for each layer; and sentences on them.

    The layers are of one model, for several numbers of tokens.
    """
    lines: list[Text | str] = []
    for arithmetic in dict.fromkeys(each.arithmetic for each in layers):
        found = [each for each in layers if each.arithmetic == arithmetic]
        model = found[0].workload
        title = f"one of {model.layers} layers of {model.model}, {arithmetic}; sum of the device us of its calls"
        lines += ["", *wrapped(title, width), *table(_times(found), width)]
        lines += ["", "the fastest for each part, and its device us in a layer", *table(_parts(found), width)]
        for each in found:
            head = "" if len(found) == 1 else f"{each.workload.new_tokens}: "
            lines += [line for text in each.sentences for line in wrapped(f"{head}{text}", width, indent="  ")]
    return lines


def _times(layers: Sequence[Layer]) -> list[Field]:
    """The time of the layer by choice. A cell is empty if the choice has no time for a part."""
    choices = [{each.name: each for each in layer.whole_layer} for layer in layers]
    names = list(dict.fromkeys(name for each in choices for name in each))
    columns = [
        Field(layer.workload.new_tokens, [_time(each.get(name)) for name in names])
        for layer, each in zip(layers, choices, strict=True)
    ]
    return [Field("each part by", names, False), *columns]


def _parts(layers: Sequence[Layer]) -> list[Field]:
    parts = [{(each.shape.name, each.shape.operation): each for each in layer.parts} for layer in layers]
    names = list(dict.fromkeys(name for each in parts for name in each))
    columns = [
        Field(layer.workload.new_tokens, [_pick(each.get(name)) for name in names], False)
        for layer, each in zip(layers, parts, strict=True)
    ]
    operations = Field("operation", [operation for _, operation in names], False)
    return [Field("part", [name for name, _ in names], False), operations, *columns]


def _time(choice: Choice | None) -> str:
    return "" if choice is None else f"{choice.us:,.1f}"


def _pick(part: Part | None) -> str:
    """The implementation that is fastest for a part, with the time of the part in a layer; empty for none."""
    if part is None or part.pick is None:
        return ""
    return f"{part.pick.row.implementation} {part.us(part.pick) or 0.0:,.1f}"
