"""Describes the operation that a user's file defines, for the parent process, which never runs the file."""

from __future__ import annotations

from dataclasses import replace

import torch

from suite import custom
from suite.custom.about import About
from suite.custom.truth import facts
from suite.worker.protocol import DescribeRequest


def describe(request: DescribeRequest, device: torch.device) -> About:
    """The operation of a file, with the facts of the requested cases, or of the file's own.

    Raises `SuiteError` for a file that cannot be used.
    """
    op = custom.find(request.source)
    shapes = [shape for text in request.shapes for shape in op.parse_shapes(text)] or op.about.defaults
    asked = [dtype for dtype in request.dtypes if dtype in (*op.dtypes, *op.dtypes_beyond)]
    cases = [op.case(shape, dtype, "ieee") for shape in shapes for dtype in asked or op.dtypes]
    return replace(op.about, facts=tuple(facts(op.program, case, device) for case in dict.fromkeys(cases)))
