"""The time that a worker may be silent in each phase."""

from __future__ import annotations

import pytest

from suite.core.phases import Phase
from suite.processes.limits import limit_s, overdue


@pytest.mark.parametrize(
    ("phase", "timeout_s", "limit"),
    [
        (Phase.FIRST_CALL, 120.0, 120.0),
        (Phase.FIRST_CALL, 5.0, 5.0),
        (Phase.SECOND_CALL, 120.0, 30.0),
        (Phase.THIRD_CALL, 120.0, 30.0),
        (Phase.TELLING_CALL, 120.0, 120.0),
        (Phase.TIMED_CALL, 120.0, 30.0),
        (Phase.SECOND_CALL, 5.0, 5.0),
        (Phase.STARTING, 1.0, 600.0),
        (Phase.PREPARING, 1.0, 600.0),
        (Phase.JUDGING, 1.0, 600.0),
        (Phase.JUDGING, 900.0, 900.0),
    ],
)
def test_each_phase_has_its_limit(phase: Phase, timeout_s: float, limit: float) -> None:
    assert limit_s(phase, timeout_s) == limit


def test_a_timeout_names_the_phase_and_the_configuration() -> None:
    assert overdue(Phase.FIRST_CALL, 120.0) == (
        "the first call (load, build, compile, tune) did not end within 120 s and was stopped; --timeout allows more"
    )
    assert overdue(Phase.SECOND_CALL, 30.0) == (
        "a second call, after earlier calls had ended, did not end within 30 s and was stopped"
    )
    assert overdue(Phase.TIMED_CALL, 30.0, "BLOCK=64") == (
        "a timed call of BLOCK=64, after earlier calls had ended, did not end within 30 s and was stopped"
    )
    assert overdue(Phase.TELLING_CALL, 120.0, "odd_k").startswith("a telling call of odd_k, after earlier calls")
    assert overdue(Phase.JUDGING, 600.0, "BLOCK=64") == "judging did not end within 600 s and was stopped"
