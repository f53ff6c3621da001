"""The parts of an operation's work alone, by its vendor's libraries: the local product, and the communication."""

from __future__ import annotations

import importlib
import importlib.util

from suite import frameworks
from suite.core.package import qualified
from suite.ranks.problem import RankProblem
from suite.ranks.sampling import RankedCall


def parts_alone(problem: RankProblem) -> list[RankedCall]:
    """The calls `product` and `communication` of the operation's `torch_impls/<operation>/_parts.py`, if it has one."""
    adapter = frameworks.get("torch")
    name = qualified(f"{adapter.folder}.{problem.op.name}")
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(f"{name}._parts") is None:
        return []
    function = adapter.over_ranks(importlib.import_module(f"{name}._parts").parts)
    found = function(*problem.buffers, **problem.op.arguments(problem.case))
    return [RankedCall(part, issue, adapter, is_part=True) for part, issue in found.items()]
