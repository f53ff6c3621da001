"""The search for the fastest configuration, with fake times and kernels that compute on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tuned_kernels import THREE, call, fake_module, tuned_folder, write_tuned  # noqa: F401 (a fixture)

from suite import frameworks, ops
from suite.core.errors import SuiteError
from suite.core.phases import Phase
from suite.hardware.device import Device
from suite.worker.pool import Pool
from suite.worker.protocol import Done, TunedKernel, TuneReply, TuneRequest, decode, encode

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("tuned_folder")


def race(times: dict[str, float], *, failing: str = "", wrong: str = "") -> tuple[Any, list[list[str]]]:
    """A race from "a", and who took part in each measurement."""
    from suite.worker import tuning_search as search

    rounds: list[list[str]] = []

    def measure(names: Sequence[str], budget_s: float) -> dict[str, float]:
        rounds.append(list(names))
        return {name: times[name] for name in names}

    outcome = search.find_fastest(
        list(times),
        "a",
        time_once=lambda name: None if name in failing else times[name],
        measure=measure,
        judge=lambda name: "value: off" if name in wrong else "",
    )
    return outcome, rounds


def test_slow_candidates_drop_out_early_except_the_one_to_beat() -> None:
    outcome, rounds = race({"a": 2000.0, "b": 1000.0, "c": 1340.0, "d": 1400.0, "e": 1050.0})
    assert (outcome.best, outcome.us, outcome.first_us, outcome.candidates) == ("b", 1000.0, 2000.0, 5)
    assert rounds == [["a", "b", "c", "e"], ["a", "b", "e"]]


def test_failures_are_counted_and_a_wrong_candidate_does_not_win() -> None:
    outcome, _ = race({"a": 104.0, "b": 101.0, "c": 100.0, "d": 90.0}, failing="d", wrong="c")
    assert (outcome.best, outcome.failed, outcome.wrong, outcome.candidates) == ("b", 1, 1, 4)


def test_nothing_wins_where_all_are_wrong_or_the_one_to_beat_fails() -> None:
    with pytest.raises(SuiteError, match="none of the 2 fastest configurations agrees: value: off"):
        race({"a": 1.0, "b": 1.0}, wrong="ab")
    with pytest.raises(SuiteError, match="cannot be launched again"):
        race({"a": 1.0, "b": 1.0}, failing="a")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Larger blocks are faster. The names of what was measured last."""
    from suite import timing
    from suite.worker import tuning_search as search

    measured: list[str] = []

    def measure(calls: Sequence[timing.Call], **options: Any) -> dict[str, Any]:
        measured[:] = [each.name for each in calls]
        for each in calls:
            options["on_progress"](each.name)
            each.run()
        times = {name: 1000 - 0.1 * int(name.split(",")[0].split("=")[1]) for name in measured}
        return {name: SimpleNamespace(device_us=us) for name, us in times.items()}

    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(search, "HOST_US", 1e9)  # a busy host is no reason to lose a candidate
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    return measured


def find(
    module: ModuleType, on_phase: Callable[..., None] = lambda phase, config="": None, N: int = 64
) -> list[TunedKernel]:
    from suite.checking.problem import Problem
    from suite.worker.tuning_search import Search

    line = SimpleNamespace(
        adapter=frameworks.get("torch"),
        deterministic=True,
        load=lambda: module,
        function=lambda: module.vector_add,
    )
    problem = Problem(ops.get("vector_add").case((N,)), 0, torch.device("cpu"))
    return Search(line, problem, torch.device("cpu"), 0, on_phase).run()  # type: ignore[arg-type]


def test_a_search_finds_the_fastest_that_launches_and_agrees(clock: list[str]) -> None:
    module = fake_module({512: "does not compile", 256: "does not launch", 128: "wrong"})
    before = module.kernel.cache
    phases: list[tuple[Phase, str]] = []
    (found,) = find(module, lambda phase, config="": phases.append((phase, config)))
    assert found.entry.config == {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
    assert (found.entry.kernel, found.entry.key, found.entry.dtypes) == ("fake.kernel", {"N": 64, "MODE": "up"}, THREE)
    assert (found.entry.us, found.entry.short_list_us, found.entry.candidates) == (993.6, 998.4, 6)
    assert (found.short_list, found.failed, found.wrong) == ("BLOCK=16, num_warps=4, num_stages=3", 2, 1)
    assert module.kernel.cache is before, "caches are empty only during the search"
    assert "run" not in vars(module.kernel)
    assert (Phase.TIMED_CALL, "BLOCK=64, num_warps=4, num_stages=3") in phases
    assert phases[0] == (Phase.FIRST_CALL, "")


def test_a_candidate_stays_if_one_of_its_calls_is_delayed(clock: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from suite.worker import tuning_search as search

    now, running, readings = 0, "", Counter[str]()

    def on_phase(phase: Phase, config: str = "") -> None:
        nonlocal running
        running = config

    def read() -> int:
        """A second passes before the second reading for the fastest candidate."""
        nonlocal now
        readings[running] += 1
        now += 10**9 if running.startswith("BLOCK=512") and readings[running] == 2 else 1000
        return now

    monkeypatch.setattr(search, "HOST_US", 0.0)
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter_ns=read))
    (found,) = find(fake_module(), on_phase)
    assert found.entry.config["BLOCK"] == 512


def test_a_later_process_uses_what_was_found(clock: list[str]) -> None:
    (found,) = find(fake_module())
    message = decode(encode(Done(TuneReply("ok", found=(found,)))))
    assert isinstance(message, Done)
    assert isinstance(message.reply, TuneReply)
    module = fake_module()
    write_tuned(message.reply.found[0].entry)
    assert call(module, 64)["BLOCK"] == 512


def test_a_call_without_autotuning_finds_nothing(clock: list[str]) -> None:
    assert find(fake_module(), N=0) == []


def test_a_configuration_that_breaks_the_device_ends_the_search_by_name(
    clock: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(device: Any = None) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    with pytest.raises(SuiteError, match="BLOCK=128, num_warps=4, num_stages=3: does not launch"):
        find(fake_module({128: "does not launch"}))


def test_a_worker_replies_where_there_is_no_autotuner_and_where_the_case_is_not_covered() -> None:
    case = ops.get("matmul").case((16, 16, 16), "float32")
    with Pool(Device("cpu", name="CPU")) as pool:
        replies = [pool.ask(TuneRequest(case, name, 0), timeout_s=60.0) for name in ("torch", "triton/persistent")]
    assert replies[0] == TuneReply("ok")
    assert isinstance(replies[1], TuneReply)
    assert replies[1].status == "unsupported"
