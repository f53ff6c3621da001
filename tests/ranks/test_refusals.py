"""Commands for one process refuse operations over several."""

from __future__ import annotations

import pytest

from suite.cli.once import call_once
from suite.cli.options import ranks
from suite.core.errors import UsageError
from suite.hardware.device import Device
from suite.runner.arguments import one_case
from suite.runner.selection import Selection

CPU = Device("cpu", name="CPU")


def test_a_function_of_the_callers_process_cannot_be_checked() -> None:
    with pytest.raises(UsageError, match="all_reduce runs in several processes"):
        one_case("all_reduce", (100,), None, None, None, {})


def test_one_call_in_one_process_is_refused() -> None:
    with pytest.raises(UsageError, match="--once makes one call in one process, and all_reduce runs in several"):
        call_once(Selection(("all_reduce",), shapes=("N=4",)), CPU, "torch", 0)


@pytest.mark.parametrize("text", ["0", "17", "two", "-1", "2.0", ""])
def test_a_number_of_gpus_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gpus"):
        ranks(text)


def test_the_number_of_gpus() -> None:
    assert (ranks(None), ranks("3")) == (0, 3)
    assert ranks("all") >= 2
