"""Users' files in external processes, judged by this process, which never runs their code."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from external_files import CASE, CPU, RIGHT, external, write
from tries import passes_once

from suite.core.phases import Phase
from suite.external.disturbance import DISTURBED_RATIO, FileTiming, disturbance, time_file
from suite.external.process import MAX_HANDOFF_NS, ExternalProcess
from suite.implementations.identity import ExternalReference
from suite.processes import tree
from suite.processes.child import WorkerDiedError, WorkerTimeoutError
from suite.timing import Timing
from suite.worker.protocol import (
    CheckReply,
    CheckRequest,
    Failed,
    ProbeReply,
    ProbeRequest,
    TimeExternalRequest,
    TimeReply,
    TimingFailed,
)
from suite.worker.session import Session

LONG = "import os, time\nfrom pathlib import Path\n"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(CPU, lambda started: None)
    yield session
    session.external.close()


def file(folder: Path, name: str, text: str) -> ExternalReference:
    return external(write(folder / f"{name}.py", text)).reference


def answer(session: Session, request: CheckRequest | ProbeRequest | TimeExternalRequest) -> object:
    """The reply to a request, as the worker's loop makes it."""
    try:
        return session.handle(request)
    except Exception as error:
        return session.failed(request, error)


def checked(session: Session, reference: ExternalReference, timeout_s: float = 60.0) -> object:
    return answer(session, CheckRequest(CASE, reference, 0, timeout_s))


def timed(session: Session, reference: ExternalReference, vendor: str = "", vendor_us: float = 0.0) -> object:
    return answer(session, TimeExternalRequest(CASE, reference, 0, "cold", False, vendor, vendor_us))


def test_the_time_of_a_command_is_measured_once(session: Session, tmp_path: Path, monkeypatch: Any) -> None:
    """So that a file which was loaded before cannot lengthen it."""
    measured = iter((MAX_HANDOFF_NS, 300_000))
    monkeypatch.setattr(ExternalProcess, "_measure_handoff", lambda self: next(measured))
    monkeypatch.setattr(session.external, "_handoff_ns", 0)
    known = []
    for name in ("first", "second", "third"):
        checked(session, file(tmp_path, name, RIGHT))
        known.append(session.external._handoff_ns)
    assert known == [0, 300_000, 300_000]


def test_a_file_is_checked_and_timed_without_running_here(session: Session, tmp_path: Path) -> None:
    reference = file(tmp_path, "right", RIGHT)
    reply = checked(session, reference)
    assert isinstance(reply, CheckReply)
    assert (reply.status, reply.reason, reply.deterministic) == ("ok", "", "yes")
    probed = answer(session, ProbeRequest(CASE, reference, 0))
    assert isinstance(probed, ProbeReply)
    assert (probed.status, probed.reason) == ("ok", "")
    assert probed.checked
    timing = timed(session, reference, "torch", 1e6)
    assert isinstance(timing, TimeReply)
    columns = timing.timings["with/right"]
    assert columns.device_us
    assert columns.vs_best
    assert columns.remarks == ""
    assert "with__right" not in sys.modules


REFUSED = {
    "stale": ("kept = []\ndef vector_add(a, b):\n    kept.append(a + b)\n    return kept[0]\n", "same buffer"),
    "alias": ("def vector_add(a, b):\n    return a.add_(b)\n", "aliases input"),
    "writes": ("def vector_add(a, b):\n    c = a + b\n    b[0] = 7\n    return c\n", "inputs changed: .* argument 2"),
    "form": ("def vector_add(a, b):\n    return (a + b).double()\n", "dtype: the result is float64"),
    "patched": (
        "import torch\ntorch.equal = lambda *_: True\n"
        "def vector_add(a, b):\n    c = a + b\n    a[0] = 7\n    return c\n",
        "inputs changed: .* argument 1",
    ),
    "flushes": (
        "import torch\ntorch.set_flush_denormal(True)\ndef vector_add(a, b):\n    return a * b\n",
        "value: at",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_is_refused_from_here(name: str, session: Session, tmp_path: Path) -> None:
    text, reason = REFUSED[name]
    reply = checked(session, file(tmp_path, name, text))
    assert isinstance(reply, CheckReply)
    assert reply.status == "wrong"
    assert re.search(reason, reply.reason), reply.reason


ENDS = {
    "exits": ("import os\ndef vector_add(a, b):\n    os._exit(0)\n", r"ended with exit status 0: os\._exit\(0\)"),
    "killed": (LONG + "def vector_add(a, b):\n    os.kill(os.getpid(), 9)\n", "killed by SIGKILL"),
    "forges": (
        LONG + "def vector_add(a, b):\n    for each in os.listdir('/proc/self/fd'):\n"
        "        if int(each) > 2 and Path(f'/proc/self/fd/{each}').is_socket():\n"
        '            os.write(int(each), b\'{"class": "Finished"}\' * 9)\n    return a\n',
        "something other than the suite answered in its place",
    ),
    "closes": ("import os\ndef vector_add(a, b):\n    os.closerange(3, 4096)\n    return a + b\n", "ended with|closed"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_file_that_ends_its_process_costs_its_own_row(name: str, session: Session, tmp_path: Path) -> None:
    text, reason = ENDS[name]
    reply = checked(session, file(tmp_path, name, text))
    assert isinstance(reply, Failed)
    assert (reply.status, reply.implementation) == ("error", f"with/{name}")
    assert re.search(reason, reply.reason), reply.reason
    after = checked(session, file(tmp_path, "after", RIGHT))
    assert isinstance(after, CheckReply)
    assert after.status == "ok"


def test_a_call_without_end_is_stopped_with_its_line(session: Session, tmp_path: Path) -> None:
    text = "import time\ndef vector_add(a, b):\n    time.sleep(60)\n"

    def stopped(limit_s: float) -> None:
        reply = checked(session, file(tmp_path, "sleeps", text), timeout_s=limit_s)
        assert isinstance(reply, Failed)
        assert reply.status == "timeout"
        where = rf"first call .* did not end within {limit_s:g} s.* at sleeps\.py:3"
        assert re.search(where, reply.reason), reply.reason

    passes_once(stopped, (0.5, 20.0))


def test_the_process_and_what_it_started_are_stopped_between_requests(session: Session, tmp_path: Path) -> None:
    """Also a child in a session of its own whose parent has ended."""
    text = (
        LONG + "if os.fork() == 0:\n    if os.fork() == 0:\n        os.setsid()\n        while True: pass\n"
        "    os._exit(0)\nos.wait()\n" + RIGHT
    )
    adopted = set(tree.children(os.getpid()))
    tree.adopt_orphans()
    reference = file(tmp_path, "starts", text)
    assert isinstance(checked(session, reference), CheckReply)
    new = set(tree.children(os.getpid())) - adopted
    assert len(new) == 2, "the external process and the orphan"

    def all_stopped(wait_s: float) -> None:
        time.sleep(wait_s)
        states = {Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] for pid in new}
        assert states == {b"T"}

    passes_once(all_stopped, (0.05, 0.5, 5.0))
    session.external.drop(reference)
    assert not new & set(tree.children(os.getpid()))


def test_a_process_is_stopped_also_if_this_one_was_stopped_meanwhile(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = file(tmp_path, "stops", RIGHT)
    assert isinstance(checked(session, reference), CheckReply)
    process = session.external._kept[reference]
    process.resume()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", partial(next, itertools.count(0.0, 600.0)))
        process.stop()
    assert tree.stands_still(process.pid)
    process.expect_still()
    process.pause()


def test_a_result_that_is_wrong_when_timed_is_found_from_here(session: Session, tmp_path: Path) -> None:
    text = "calls = []\ndef vector_add(a, b):\n    calls.append(0)\n    return a + b if len(calls) < 5 else a * 1\n"
    reply = timed(session, file(tmp_path, "later", text))
    assert isinstance(reply, TimingFailed)
    assert reply.status == "wrong"
    assert set(reply.wrong) == {"with/later"}


CONTINUED = (
    "import ctypes, signal, threading\nlibc = ctypes.CDLL(None)\ntimers = []\n"
    "def spin():\n    while True: pass\n"
    "def begin():\n"
    "    threading.Thread(target=spin, daemon=True).start()\n"
    "    signal.signal(signal.SIGCONT, lambda *_: None)\n"
    "    for _ in range(40):\n"
    "        event, timer = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_void_p()\n"
    "        libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer))\n"
    "        timers.append(timer)\n"
    "def vector_add(a, b):\n"
    "    if not timers: begin()\n"
    "    for i, timer in enumerate(timers):\n"
    "        at = int(5e6 * 1.2**i)\n"
    "        libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, at // 10**9, at % 10**9), None)\n"
    "    return a + b\n"
)


def test_a_file_that_runs_while_it_is_stopped_is_refused(session: Session, tmp_path: Path) -> None:
    """It would see the inputs before its sample begins."""
    reference = file(tmp_path, "continued", CONTINUED)
    assert getattr(checked(session, reference), "status", "") == "ok"
    refused = timed(session, reference)
    assert isinstance(refused, TimingFailed)
    assert "it ran while a signal had stopped it" in refused.reason


def test_a_replaced_clock_gains_nothing(session: Session, tmp_path: Path) -> None:
    text = (
        "import time\nreal = time.perf_counter_ns\nimport suite.external.session as external\n"
        "def vector_add(a, b):\n    end = real() + 20_000_000\n    while real() < end: pass\n    return a + b\n"
        "external.perf_counter_ns = time.perf_counter_ns = lambda: 0\n"
    )

    def takes_time(_: int) -> None:
        reply = timed(session, file(tmp_path, "clock", text))
        assert isinstance(reply, TimeReply)
        found_us = reply.timings["with/clock"].device_us or 0.0
        assert found_us > 2_000, "a tenth of 20 ms: the usual time of a sample without a call is subtracted"

    passes_once(takes_time, range(3))


PATCHES = {
    "slows": (
        "import torch, time\nadd = torch.add\ndef slow(*given, **more):\n    time.sleep(0.02)\n"
        "    return add(*given, **more)\ntorch.add = slow\n" + RIGHT
    ),
    "breaks": "import torch\ndel torch.add\n" + RIGHT,
}


@pytest.mark.thorough  # runner/test_cheats.py has files that patch beside the vendor too
@pytest.mark.parametrize("name", PATCHES)
def test_a_file_that_patches_torch_does_not_change_the_vendor_beside_it(
    name: str, session: Session, tmp_path: Path
) -> None:
    reply = timed(session, file(tmp_path, name, PATCHES[name]), "torch", 1e6)
    assert isinstance(reply, TimeReply), reply
    columns = reply.timings[f"with/{name}"]
    assert columns.device_us
    assert columns.vs_best is not None
    assert columns.vs_best * columns.device_us < 20_000, "the vendor's time is not that of the patched function"
    assert columns.remarks == ""


def test_a_vendor_is_disturbed_beyond_limits_alone() -> None:
    def found(us: float | None = 150.0) -> tuple[dict[str, Timing], None, int]:
        return {"torch": beside, "with/a": Timing("wall", "", "cold", device_us=us)}, None, 0

    beside = Timing("wall", "", "cold", device_us=150.0, device_us_low=90.0)
    limit = 150.0 / DISTURBED_RATIO["cpu"]
    assert disturbance(found(), "with/a", "torch", limit, "cpu") == ""
    assert disturbance(found(), "with/a", "torch", 90.0, "cpu") == "", "the intervals overlap"
    disturbed = "torch takes 150 us beside it, and 89 us"
    assert disturbance(found(), "with/a", "torch", 89.0, "cpu").startswith(disturbed)
    assert disturbance(found(1200.0), "with/a", "torch", 89.0, "cpu").startswith(disturbed), "0.074 becomes 0.125"
    assert disturbance(found(1250.0), "with/a", "torch", 89.0, "cpu") == "", "0.071 becomes 0.12"
    assert disturbance(found(None), "with/a", "torch", 89.0, "cpu").startswith(disturbed)
    beside = replace(beside, device_us=None, device_us_low=None, error="no kernel")
    assert disturbance(found(), "with/a", "torch", 1.0, "cpu") == "torch has no time beside it: no kernel"
    assert disturbance(found(), "with/a", "", 0.0, "cpu") == ""


@pytest.mark.parametrize(("vendor_us", "disturbs"), [((300, 300, 100), False), ((300, 300, 300), True)])
def test_a_file_is_said_to_disturb_if_three_measurements_show_it(vendor_us: tuple[float, ...], disturbs: bool) -> None:
    beside, dropped = iter(vendor_us), list[object]()

    def timed(*request: object) -> tuple[dict[str, Timing], None, int]:
        times = {"with/a": 100.0, "torch": next(beside)}
        return {name: Timing("wall", "", "cold", device_us=us) for name, us in times.items()}, None, 0

    pool: Any = SimpleNamespace(device=CPU, drop=dropped.append, time=timed)
    request: Any = SimpleNamespace(implementation=SimpleNamespace(name="with/a"), vendor="torch", vendor_us=100.0)
    unused: Any = None
    found = time_file(pool, request, unused, unused, lambda: 101.0)
    assert isinstance(found, FileTiming)
    assert bool(found.disturbance) == disturbs
    assert len(dropped) == 2


def test_the_end_of_an_external_process_is_attributed_to_its_file(session: Session, tmp_path: Path) -> None:
    request = CheckRequest(CASE, file(tmp_path, "any", RIGHT), 0)
    session._report("torch", Phase.TIMED_CALL)
    killed = WorkerDiedError("killed", "torch", from_outside=True)
    assert session.failed(request, killed) == Failed("killed", "with/any", "error", True)
    assert session.failed(request, WorkerTimeoutError("late", None)) == Failed("late", "with/any", "timeout", False)
