"""Truths keep subnormal numbers, whatever mode a kernel has left the processor in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from suite import ops
from suite.core.paths import ROOT
from suite.hardware.device import Device
from suite.numerics import subnormals
from suite.worker.protocol import CheckReply, CheckRequest
from suite.worker.session import Session

CASE = ops.get("vector_add").cases("subnormal", "cpu")[0]


@pytest.fixture
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    yield
    torch.set_flush_denormal(False)


def test_the_mode_is_found_and_left_as_it_was(flushing: None) -> None:
    assert subnormals.thread_flushes()
    with subnormals.preserved(torch.device("cpu")):
        assert not subnormals.thread_flushes()
    assert subnormals.thread_flushes()


def test_the_truth_of_subnormal_inputs_is_not_zero(flushing: None) -> None:
    """A kernel that flushes must not agree with a truth that was flushed."""
    session = Session(Device("cpu", name="CPU"), lambda started: None)
    reply = session.handle(CheckRequest(CASE, "torch", 0))
    assert isinstance(reply, CheckReply)
    assert reply.status == "wrong", reply
    torch.set_flush_denormal(False)
    reply = session.handle(CheckRequest(CASE, "torch", 0))
    assert isinstance(reply, CheckReply)
    assert reply.status == "ok", reply


def test_threads_that_started_in_that_mode_do_not_compute_truths() -> None:
    """torch's threads start with the first large operation, in the mode of that moment, and keep it."""
    program = (
        "import torch; from suite.numerics import subnormals\n"
        "torch.set_num_threads(2); torch.set_flush_denormal(True)\n"
        "x = torch.full((1 << 20,), 1e-310, dtype=torch.float64); x.mul(1.0)\n"
        "torch.set_flush_denormal(False)\n"
        "print(subnormals.thread_flushes(), subnormals.pool_flushes())\n"
        "with subnormals.preserved(torch.device('cpu')): print(bool((x.mul(0.5) == 0).any()))\n"
        "print(torch.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False", "2"]
