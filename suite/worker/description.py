"""Describes the operation that a user's file defines, for the parent process, which never runs the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from suite import custom
from suite.custom.about import About
from suite.custom.dependence import dependence
from suite.custom.operation import CustomOperation
from suite.custom.truth import facts
from suite.worker.protocol import DescribeRequest


def describe(request: DescribeRequest, device: torch.device, on_run: Callable[[], None]) -> About:
    """The operation of a file, with the facts of the requested cases, or of the file's own.

    The first case also shows which inputs and parameters change nothing. `on_run` is called before each run for that.
    Raises `SuiteError` for a file that cannot be used.
    """
    op = custom.find(request.source)
    shapes = [shape for text in request.shapes for shape in op.parse_shapes(text)] or op.about.defaults
    asked = [dtype for dtype in request.dtypes if dtype in (*op.dtypes, *op.dtypes_beyond)]
    cases = [op.case(shape, dtype, "ieee") for shape in shapes for dtype in asked or op.dtypes]
    about = replace(op.about, facts=tuple(facts(op.program, case, device) for case in dict.fromkeys(cases)))
    if not cases or not CustomOperation(op.source, about, op.program).fits(cases[0], device):
        return about
    try:
        found = dependence(op.program, cases[0], device, on_run)
    except Exception:  # the rows will report it
        return about
    return replace(about, weaknesses=found.sentences, unexamined=found.unexamined)
