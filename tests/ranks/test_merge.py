"""One reply of those of all ranks: the worst counts, and the rank of a fault is named."""

from __future__ import annotations

from suite.ranks.merge import is_fault, merged
from suite.worker.protocol import CheckReply, Failed, ProbeReply, TimeReply, TimingFailed

RIGHT = CheckReply("ok", "", 0.5, 0.3, deterministic="yes", judged=3)


def test_the_largest_errors_count_and_the_judged_calls_of_all() -> None:
    found = merged({0: RIGHT, 1: CheckReply("ok", "", 0.7, 0.2, deterministic="no", judged=4)}, 2)
    assert found == CheckReply("ok", "", 0.7, 0.3, deterministic="no", judged=7)


def test_a_wrong_rank_is_named() -> None:
    found = merged({0: RIGHT, 1: CheckReply("wrong", "value: at [3] got 1", 0.1, 9.0)}, 2)
    assert isinstance(found, CheckReply)
    assert (found.status, found.reason, found.error_ratio) == ("wrong", "rank 1: value: at [3] got 1", 9.0)


def test_an_error_comes_before_wrong_results_and_several_ranks_are_named() -> None:
    found = merged({0: CheckReply("wrong", "value"), 1: Failed("MemoryError", "mine")}, 2)
    assert found == Failed("rank 0: value; rank 1: MemoryError", "mine")


def test_the_same_reason_of_all_ranks_is_told_once() -> None:
    assert merged({rank: Failed("KeyError", "mine") for rank in range(2)}, 2).reason == "KeyError (on all 2 ranks)"
    assert merged({0: Failed("KeyError", "mine")}, 2).reason == "rank 0: KeyError"  # the other did not answer
    assert merged({0: Failed("KeyError", "mine")}, 1).reason == "KeyError"


def test_times_are_those_of_the_first_rank_unless_another_fails() -> None:
    times, failed = TimeReply({}), TimingFailed("wrong", "value", "mine", {"mine": "value"})
    assert merged({0: times, 1: TimeReply({})}, 2) is times
    found = merged({0: times, 1: failed}, 2)
    assert isinstance(found, TimingFailed)
    assert found.reason == "rank 1: value"


def test_only_replies_without_a_right_result_are_faults() -> None:
    assert not is_fault(RIGHT)
    assert not is_fault(TimeReply({}))
    assert is_fault(ProbeReply("wrong", "value", ""))
    assert is_fault(CheckReply("unsupported", "takes no float16"))
