"""A sample on a GPU in an external process, with a channel and a recorder that note what they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from suite import ops
from suite.external import protocol as p
from suite.external.held import Held
from suite.external.session import ExternalSession
from suite.hardware.device import Device
from suite.implementations import lookup
from suite.implementations.bound_call import bind

CASE = ops.get("vector_add").case((100,))


class Notes:
    """A channel, and a recorder of the same order of events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.commands = [p.Rebind(), p.Go()]

    def spin(self, ns: int) -> None: ...

    def receive(self, kind: Any) -> tuple[Any, list[int]]:
        return self.commands.pop(0), []

    def send(self, message: object) -> None:
        self.events.append(type(message).__name__)

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        self.events.append("prepare")
        prepare()
        self.events.append("run")
        run()

    def deliver(self, run: Callable[[], None]) -> None:
        self.events.append("deliver")
        run()


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def session(notes: Notes) -> ExternalSession:
    made = ExternalSession(Device("cpu", name="CPU"), notes)  # type: ignore[arg-type]
    operands = (torch.randn(100), torch.randn(100))
    bound = bind(lookup.find(CASE, "torch"), operands, {})
    made.held = Held(
        CASE,
        operands,
        (),
        torch.zeros(100),
        {},
        ((100,),),
        ("float32",),
        torch.device("cpu"),
        [],
        {},
        None,
        {"torch": bound},
        {},
    )
    made.recorder = notes  # type: ignore[assignment]
    return made


def test_the_delivery_of_a_result_is_recorded_after_its_call(session: ExternalSession, notes: Notes) -> None:
    """The answer that ends the worker's clock goes out first, and the result lies in the shared memory at the end."""
    answer = session.answer(p.Record("torch"), [])
    assert notes.events == ["prepare", "Finished", "Finished", "run", "deliver", "Ran"]
    assert answer == p.Delivered()
    held = session.held
    assert held is not None
    assert torch.equal(held.result, held.operands[0] + held.operands[1])


def test_the_kept_result_of_a_sample_is_delivered_once_with_its_present_values(session: ExternalSession) -> None:
    held = session.held
    assert held is not None
    session.answer(p.Sample("torch"), [])
    assert held.kept == {}
    session.answer(p.Keep("torch"), [])
    expected = held.operands[0] + held.operands[1]
    held.operands[0].add_(1)
    sampled = session.answer(p.Sample("torch"), [])
    assert sampled.places[0].address != held.kept["torch"][0].data_ptr()
    held.kept["torch"][0][0] = 7
    assert session.answer(p.Deliver("torch"), []) == p.Delivered()
    assert float(held.result[0]) == 7
    assert torch.equal(held.result[1:], expected[1:])
    assert held.kept == {"torch": []}


def test_a_cache_that_a_file_keeps_is_given_back_before_a_sample_and_refused_after_it(
    session: ExternalSession, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ["a part of the cache", ""]
    monkeypatch.setattr(session.target, "give_cache_back", lambda: notes.events.append("given back"))
    monkeypatch.setattr(session.target, "kept_cache", lambda: kept[0])
    assert session.answer(p.Record("torch"), []) == p.Delivered("a part of the cache")
    assert notes.events[:2] == ["given back", "prepare"]
    check = p.Check(lookup.find(CASE, "torch").reference, late=False, again=False, telling=False)
    assert session.answer(check, []).refusal == "a part of the cache"
