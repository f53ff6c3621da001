"""The search for the implementation that broke a timed run, on scripts of the sets that can be timed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from suite.runner.attribution import Failure, time_together

NAMES = ("triton", "jax", "cuda", "torch")


def crash(suspect: str | None, **more: bool) -> Failure:
    return Failure("error", "the worker was killed by SIGSEGV", suspect, **more)


def test_all_are_timed_together_in_one_attempt() -> None:
    attempts: list[Sequence[str]] = []

    def attempt(names: Sequence[str]) -> Mapping[str, float]:
        attempts.append(tuple(names))
        return dict.fromkeys(names, 1.0)

    outcome = time_together(NAMES, attempt)
    assert (dict(outcome.timings), outcome.failed, outcome.given_up) == (dict.fromkeys(NAMES, 1.0), {}, None)
    assert attempts == [NAMES]


def test_nothing_to_time_asks_nothing() -> None:
    outcome = time_together((), lambda names: crash(None))
    assert (outcome.timings, outcome.failed, outcome.given_up) == ({}, {}, None)


def test_a_certain_suspect_is_not_timed_alone() -> None:
    attempts: list[Sequence[str]] = []

    def attempt(names: Sequence[str]) -> Mapping[str, float] | Failure:
        attempts.append(tuple(names))
        return crash("jax", certain=True) if "jax" in names else dict.fromkeys(names, 1.0)

    outcome = time_together(NAMES, attempt)
    assert set(outcome.failed) == {"jax"}
    assert attempts == [NAMES, ("triton", "cuda", "torch")]


def test_a_failure_of_the_suite_itself_is_attributed_to_no_implementation() -> None:
    """The worker goes on and names no suspect: after the second time all are given up."""
    outcome = time_together(NAMES, lambda names: crash(None, worker_alive=True))
    assert (outcome.timings, outcome.failed) == ({}, {})
    assert outcome.given_up is not None


@given(
    failing=st.sets(st.sampled_from(NAMES)),
    suspect=st.sampled_from([None, *NAMES]),
    worker_alive=st.just(False),
)
def test_implementations_that_fail_alone_are_found_whichever_is_suspected(
    failing: set[str], suspect: str | None, worker_alive: bool
) -> None:
    """Each failing implementation breaks every run with it. The others are timed, unless all are failing."""

    def attempt(names: Sequence[str]) -> Mapping[str, float] | Failure:
        if not failing & set(names):
            return dict.fromkeys(names, 1.0)
        return crash(suspect if suspect in names else None, worker_alive=worker_alive)

    outcome = time_together(NAMES, attempt)
    right = set(NAMES) - failing
    if right:
        assert set(outcome.timings) == right
        assert set(outcome.failed) == failing
    else:
        assert not outcome.timings
        assert outcome.given_up is not None or set(outcome.failed) == failing


def test_those_whose_results_were_wrong_are_out_at_once() -> None:
    attempts: list[Sequence[str]] = []
    wrong = {"jax": "returned the result of earlier inputs", "torch": "wrote to its inputs"}

    def attempt(names: Sequence[str]) -> Mapping[str, float] | Failure:
        attempts.append(tuple(names))
        if wrong.keys() & set(names):
            return Failure("wrong", wrong["jax"], "jax", worker_alive=True, wrong=wrong)
        return dict.fromkeys(names, 1.0)

    outcome = time_together(NAMES, attempt)
    assert attempts == [NAMES, ("triton", "cuda")]
    assert {name: failure.reason for name, failure in outcome.failed.items()} == wrong
    assert outcome.timings.keys() == {"triton", "cuda"}
    assert time_together(("jax",), attempt).failed.keys() == {"jax"}
