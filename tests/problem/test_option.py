"""Options whose values are integers, and options that implementations need not have."""

from __future__ import annotations

import pytest

from suite import ops
from suite.core.errors import UsageError
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.problem.option import Option

WINDOW = Option("window", ("none", "5", "64"), "about", integers=True, beyond=True)


def test_an_integer_is_a_value_as_a_number_and_as_text() -> None:
    assert all(map(WINDOW.accepts, ("none", "5", "7", 7, "1024")))
    assert not any(map(WINDOW.accepts, ("0", 0, "-1", "007", "1.5", "", "some", True)))
    assert not Option("layout", ("nn", "nt"), "about").accepts("7")
    attention = ops.get("attention")
    by_number, by_text = (attention.case((1, 1, 1, 2, 2, 64), window=value) for value in (7, "7"))
    assert by_number == by_text
    assert by_number.label.endswith(",causal,window=7")


def test_a_mistaken_integer_is_its_neighbour_or_the_plain_value() -> None:
    assert WINDOW.others("7") == ("none", "6", "8")
    assert WINDOW.others("1") == ("none", "2")
    assert WINDOW.others("none") == ("5", "64")
    assert Option("causal", (False, True), "about").others(True) == (False,)


def test_a_label_names_its_value() -> None:
    assert WINDOW.named("7") == "7"
    assert WINDOW.named(None) == WINDOW.named("some") == "none"


@pytest.mark.parametrize("value", [0, "-3", "three", 2**63, "\u0663"])
def test_other_windows_are_refused(value: int | str) -> None:
    with pytest.raises(UsageError, match="is none of none, or an integer from 1 to 2"):
        ops.get("attention").case((1, 1, 1, 2, 2, 64), window=value)


@pytest.mark.parametrize("operation", ["attention", "attention_grad"])
def test_lines_without_windows_are_unsupported_and_say_so(operation: str) -> None:
    """A line has windows exactly if its function has the argument, as its OPTIONS_BEYOND says."""
    case = ops.get(operation).case((1, 2, 1, 50, 70, 64), window="5")
    for each in builtin.implementations(operation):
        file = builtin.files(each.framework, operation)[each.name.partition("/")[2]]
        has = "window: int | None" in file.read_text(encoding="utf-8")
        assert has == ("window" in each.options_beyond), each.name
        if not has and each.obstacle(Device("cpu")) is None:
            assert each.obstacle(Device("cpu"), case) == ("unsupported", "has no window; its cases have window=none")


def test_visible_pairs_with_a_window_are_counted() -> None:
    op = ops.get("attention")
    for s_q, s_k, window in ((5, 5, 2), (7, 4, 2), (4, 9, 3), (3, 3, 9), (1, 6, 1)):
        seen = [(i, j) for i in range(s_q) for j in range(s_k) if i + s_k - s_q - window < j <= i + s_k - s_q]
        case = op.case((1, 1, 1, s_q, s_k, 64), window=window)
        assert op.flops(case) == 4 * 64 * len(seen)
        assert op.bytes(case) == 4 * 64 * (2 * s_q + 2 * len({j for _, j in seen}))
