"""Messages between a worker and its parent: what is sent arrives, and nothing else is accepted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args

import pytest

from suite import ops
from suite.core.phases import Phase
from suite.custom.about import About, Facts, ResultForm
from suite.frameworks.triton.tuned import Entry
from suite.hardware.device import Device
from suite.problem.source import Source
from suite.processes.codec import from_json, to_json
from suite.worker import protocol
from suite.worker.protocol import (
    BuildReply,
    BuildRequest,
    CheckReply,
    CheckRequest,
    DescribeReply,
    DescribeRequest,
    Done,
    ExternalReference,
    Failed,
    PeaksReply,
    PeaksRequest,
    ProbeReply,
    ProbeRequest,
    ProtocolError,
    Ready,
    Started,
    SustainReply,
    SustainRequest,
    TimeExternalRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
    TunedKernel,
    TuneReply,
    TuneRequest,
    decode,
    encode,
)

CASE = ops.get("attention").case((1, 2, 1, 16, 16, 16), "bfloat16", causal=True)
REFERENCE = ExternalReference("with/mine", "/home/me/mine.py", "jax", True, "0123456789ab", 7)
COLUMNS = TimingColumns("", "one; two", "cupti", "cold", 30, "interval", device_us=1.5, peak_bytes=512)
ENTRY = Entry("fake.kernel", {"N": 64, "MODE": "up", "X": None}, ("torch.float32",), {"BLOCK": 32}, 2.0, 3.0, 9)
OWN = Source("/home/me/mine.py", "reference", "0123456789ab")
FACTS = Facts((4, 6), "bfloat16", ((4, 6), ()), 50, (ResultForm("", (4,), "bfloat16"),), 0, 58, multiplies=False)
ABOUT = About("mine", "mine", "mine(x, y)", "y = x", ("M", "N"), ((4, 6),), ("bfloat16",), (), "torch", (FACTS,))
MESSAGES = [
    CheckRequest(replace(CASE, source=OWN), "torch", 0),
    DescribeRequest(OWN, ("M=4,N=6",), ("bfloat16",)),
    Done(DescribeReply(ABOUT)),
    CheckRequest(CASE, "triton/persistent", 2**63 - 1),
    CheckRequest(CASE, REFERENCE, 0),
    ProbeRequest(CASE, REFERENCE, 0),
    TimeRequest(CASE, ("torch", "jax"), 0, "cold", transfers=True),
    TimeExternalRequest(CASE, REFERENCE, 0, "warm", transfers=False, vendor="torch", vendor_us=1.5),
    TuneRequest(CASE, "triton", 0),
    SustainRequest(CASE, "triton", 0),
    BuildRequest(CASE, "cuda/wgmma", 0),
    PeaksRequest("a CPU"),
    Done(PeaksReply('{"gb_per_s": 1.5}')),
    Done(BuildReply(covered=False)),
    Ready(),
    Started(None, Phase.PREPARING),
    Started("triton", Phase.TIMED_CALL, "BLOCK=64"),
    Done(CheckReply("ok", "", 0.5, 0.25, 1.0, 1e-8, 1e-9, "yes", "BLOCK=64")),
    Done(CheckReply("wrong", "shape: a\x1b[31m\nb\udc80", 0.5, math.inf)),
    Done(ProbeReply("wrong", "value: no", "tail, nan")),
    Done(TimeReply({"torch": COLUMNS, "with/mine": COLUMNS})),
    Done(SustainReply({"sustained_us": 1.5, "joules": None})),
    Done(TimingFailed("wrong", "value: at [0]", "torch")),
    Done(TuneReply("ok", found=(TunedKernel(ENTRY, "BLOCK=32", "BLOCK=16", 2, 0),))),
    Done(TuneReply("unsupported", "float32 only")),
    Done(Failed("RuntimeError: no", None)),
]


def test_every_message_is_tried() -> None:
    kinds = {type(each) for each in MESSAGES} | {type(each.reply) for each in MESSAGES if isinstance(each, Done)}
    assert kinds == {*get_args(protocol.Request), *get_args(protocol.Event), *get_args(protocol.Reply)}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_sent_arrives(message: Any) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


def changed(message: Any, **changes: Any) -> bytes:
    return json.dumps({**to_json(message), **changes}).encode()


CHECK = CheckRequest(CASE, "torch", 0)
REFUSED = {
    "no JSON": (b"\xff", "not JSON"),
    "too deep": (b"[" * 100_000, "not JSON"),
    "a list": (b"[]", "expected CheckRequest"),
    "no class": (b"{}", "class is None; expected one of CheckRequest"),
    "an unknown class": (b'{"class": "Case"}', "class is 'Case'; expected one of CheckRequest"),
    "a class that is no text": (b'{"class": []}', r"class is \[\]; expected one of CheckRequest"),
    "an unknown field": (changed(Ready(), cheese=1), "unknown field cheese of Ready"),
    "a missing field": (b'{"class": "Started", "phase": "judging"}', "missing field config, implementation of Started"),
    "a text for a number": (changed(CHECK, seed="0"), r"CheckRequest\.seed: got '0'; expected int"),
    "true for a number": (changed(CHECK, seed=True), r"CheckRequest\.seed: got True; expected int"),
    "a float for an int": (changed(CHECK, seed=0.5), r"CheckRequest\.seed: got 0\.5; expected int"),
    "a number for a name": (changed(CHECK, implementation=1), r"CheckRequest\.implementation"),
    "a case that is a text": (changed(CHECK, case="N=64"), r"CheckRequest\.case: got 'N=64'; expected Case"),
    "an unknown phase": (changed(Started(None, Phase.JUDGING), phase="dancing"), r"Started\.phase: got 'dancing'"),
    "an unknown status": (changed(Done(Failed("", None)), reply=to_json(CheckReply("perfect", ""))), "perfect"),  # type: ignore[arg-type]
    "a reply of another class": (changed(Done(Failed("", None)), reply=to_json(Ready())), "class is 'Ready'"),
    "names that are no list": (changed(TimeRequest(CASE, (), 0, "cold", False), implementations="torch"), "a list"),
    "timings that are no object": (
        changed(Done(Failed("", None)), reply={**to_json(TimeReply({})), "timings": []}),
        "object",
    ),
}


@pytest.mark.parametrize(("line", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused(line: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(line)


def test_a_tuple_of_fixed_length_has_that_length() -> None:
    device = Device("cuda", 1, "NVIDIA H200", (9, 0))
    assert from_json(Device, to_json(device)) == device
    with pytest.raises(ProtocolError, match=r"Device\.capability: got 3 items; expected 2"):
        from_json(Device, {**to_json(device), "capability": [9, 0, 0]})
