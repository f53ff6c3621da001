"""Functions of an implementation over ranks get the group."""

from __future__ import annotations

from functools import partial

from suite import ops
from suite.implementations import lookup
from suite.ranks.implementation import over_ranks


def test_the_function_that_says_what_runs_gets_the_group() -> None:
    case = ops.get("all_gather_matmul").case((64, 96, 128), "bfloat16")
    found = over_ranks(lookup.find(case, "cuda/auto")).config_function()
    assert isinstance(found, partial)
    assert "group" in found.keywords
    assert over_ranks(lookup.find(case, "cuda")).config_function() is None
