"""Times of calls back to back, and their energy from a counter that is updated now and then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.target import FakeTarget

from suite import hardware
from suite.timing.sustained import WINDOW_NS, sustained

READING_NS = 3_000_000


class Counted(FakeTarget):
    """A target whose counter takes time to read, as on a GPU, and moves only every `period_ns`."""

    period_ns = 100_000_000

    def energy_mj(self) -> int | None:  # type: ignore[override]
        self.now += READING_NS
        return int(self.now // self.period_ns * self.period_ns / 1e9 * self.power_w * 1000)


@pytest.mark.parametrize("us", [4.0, 100.0, 1000.0, 400_000.0, 1_500_000.0])
def test_time_and_energy_of_one_call(us: float) -> None:
    target = Counted()
    found = sustained(target.call("a", us, issue_us=0.0), target)
    assert found.sustained_us == pytest.approx(us, rel=0.01)
    assert found.sustained_power_w == pytest.approx(500.0, rel=0.02)
    assert found.joules == pytest.approx(500.0 * us / 1e6, rel=0.02)
    assert target.now >= WINDOW_NS


def test_calls_that_the_host_issues_slowly_take_the_time_of_their_issue() -> None:
    target = Counted()
    assert sustained(target.call("a", 2.0, issue_us=5.0), target).sustained_us == pytest.approx(7.0, rel=0.3)


@pytest.mark.parametrize("reading", [None, 7])
def test_no_energy_without_a_counter_that_moves(reading: int | None) -> None:
    class Still(Counted):
        def energy_mj(self) -> int | None:
            self.now += READING_NS
            return reading

    target = Still()
    found = sustained(target.call("a", 100.0, issue_us=0.0), target)
    assert (found.joules, found.sustained_power_w) == (None, None)
    assert found.sustained_us == pytest.approx(100.0, rel=0.01)


def test_the_state_is_that_of_the_load() -> None:
    state = hardware.State(1300.0, 2600.0, 61.0, 690.0, 4, 0, 1980.0)
    target = Counted(states=[state, replace(state, clock_sm_mhz=1500.0, temperature_c=64.0), state])
    found = sustained(target.call("a", 100.0, issue_us=0.0), target)
    assert (found.sustained_clock_mhz, found.sustained_temperature_c) == (1300.0, 64.0)


def test_on_a_cpu_each_call_is_waited_for_and_nothing_else_is_known() -> None:
    class Host(FakeTarget):
        on_host = True

        def energy_mj(self) -> None:  # type: ignore[override]
            return None

    target, waits = Host(), 0
    call = target.call("a", 1000.0, issue_us=0.0)

    def wait(ready: int) -> None:
        nonlocal waits
        waits += 1
        call.wait(ready)

    issued = 0

    def issue() -> object:
        nonlocal issued
        issued += 1
        return call.issue()

    found = sustained(replace(call, issue=issue, wait=wait), target)
    assert issued == waits
    assert found.sustained_us == pytest.approx(1000.0)
    assert found.sustained_clock_mhz is None
