"""The types of the parameters of `compare`."""

from __future__ import annotations

import inspect

from suite.cli.compare import compare
from suite.cli.operation_options import PARAMETER
from suite.cli.parameters import Parameters


def test_each_parameter_of_compare_has_a_type() -> None:
    names = set(inspect.signature(compare).parameters) - {"command", PARAMETER}
    assert Parameters.__required_keys__ == names
