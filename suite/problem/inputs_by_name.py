"""Families of inputs by their names: an operation's own, those of all operations, and combinations with `+`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suite.core.names import did_you_mean
from suite.problem import family, layouts, realistic, specials
from suite.problem.family import Family


def known(inputs: str, families: Mapping[str, Family], of_the_suite: bool) -> bool:
    """True for a family, special numbers, a layout, or several of them with `+` between them."""
    parts = inputs.split("+")
    return all(_is_family(part, families, of_the_suite) or (of_the_suite and layouts.known(part)) for part in parts)


def find(inputs: str, families: Mapping[str, Family], of_the_suite: bool, weights: Sequence[int]) -> Family:
    """The family of a known name. `weights`: positions of the operands that are weights of a model."""
    normal = families["normal"]
    if inputs in families:
        return families[inputs]
    if inputs in realistic.KINDS:
        return realistic.family(inputs, normal, tuple(weights))
    if specials.known(inputs):
        return family.special(inputs, normal)
    parts = [
        find(part, families, of_the_suite, weights)
        if _is_family(part, families, of_the_suite)
        else family.layout(part, normal.dtypes)
        for part in inputs.split("+")
    ]
    return family.combined(normal, parts)


def valid(inputs: str, families: Mapping[str, Family]) -> str:
    """The valid names, and the nearest one to an unknown name."""
    names = (*families, *realistic.KINDS)
    kinds = f"{', '.join(specials.KINDS)} in one operand, as nan@0"
    more = f"layouts of {', '.join(layouts.KINDS)}, and several with +"
    return f"{', '.join(names)}, {kinds}, {more}{did_you_mean(inputs, names)}"


def _is_family(part: str, families: Mapping[str, Family], of_the_suite: bool) -> bool:
    """True for a family of the operation, and for those that all operations of the suite have."""
    return part in families or (of_the_suite and (part in realistic.KINDS or specials.known(part)))
