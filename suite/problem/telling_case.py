"""Telling cases: small ones that show the mistakes which an operation's usual sizes and inputs hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from suite.problem.option import Value
from suite.problem.shape import Shape


@dataclass(frozen=True)
class TellingCase:
    """A telling case, which stands for one case in every dtype and precision that its family of inputs supports.

    name: a word for the mistake that the case shows; it appears in the column `checked` and in reasons. inputs: the
    name of the family. options: the values that differ from the operation's defaults.
    """

    name: str
    shape: Shape
    inputs: str = "normal"
    options: Mapping[str, Value] = field(default_factory=dict)
