"""The checked call of an operation whose call returns a tuple."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from checked_calls import JAX, NUMPY, TORCH, kind, problem, run
from external_files import external, write
from wrong_kernels import torch_attention_grad

from suite.checking.problem import Problem
from suite.frameworks._poison import Poison
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.problem.guard_bands import has_bands
from suite.worker.protocol import CheckReply, CheckRequest, TimeExternalRequest, TimeReply
from suite.worker.session import Session

SHAPE = (1, 2, 1, 5, 7, 64)
right = torch_attention_grad.make("")


@pytest.fixture(scope="module")
def at() -> Problem:
    return problem("attention_grad", SHAPE)


@pytest.mark.parametrize("adapter", [TORCH, NUMPY, JAX], ids=lambda adapter: adapter.name)
def test_each_framework_returns_a_tuple(at: Problem, adapter: Any) -> None:
    implementation = builtin.find("attention_grad", adapter.name)
    found = run(implementation.function(), adapter, at)
    assert found.agrees, found.reason


def test_a_list_is_as_good(at: Problem) -> None:
    assert run(lambda *inputs, **options: list(right(*inputs)), TORCH, at).agrees


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (lambda dq, dk, dv: torch.cat([x.reshape(-1) for x in (dq, dk, dv)]), "type"),
        (lambda dq, dk, dv: (dq, dk, dv, dv), "type"),
        (lambda dq, dk, dv: (dq, None, dv), "type"),
        (lambda dq, dk, dv: (dk, dq, dv), "shape"),
        (lambda dq, dk, dv: (dq, dk.double(), dv), "dtype"),
        (lambda dq, dk, dv: (dq, dk, torch.stack([dv, dv], -1)[..., 0]), "strides"),
        (lambda dq, dk, dv: (dq, dk, dv + 1.0), "value"),
    ],
    ids=["one", "four", "none", "order", "dtype", "strides", "value"],
)
def test_each_result_is_looked_at(at: Problem, wrong: Any, refusal: str) -> None:
    assert kind(run(lambda *inputs, **options: wrong(*right(*inputs)), TORCH, at)) == refusal


def test_the_reason_names_the_result_and_the_place_in_it(at: Problem) -> None:
    def wrong(*inputs: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
        dq, dk, dv = right(*inputs)
        dk[0, 0, 6, 63] = math.nan
        return dq, dk, dv

    assert run(wrong, TORCH, at).reason.startswith("not finite: at dk[0, 0, 6, 63] got nan")


def test_results_in_the_memory_of_inputs_or_of_earlier_results_are_refused(at: Problem) -> None:
    kept: list[torch.Tensor] = []

    def reuses(*inputs: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
        dq, dk, dv = right(*inputs)
        kept.append(dv)
        return dq, dk, kept[0].copy_(dv)

    def aliases(*inputs: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
        dq, dk, dv = right(*inputs)
        return dq, dk, inputs[2].copy_(dv)

    assert kind(run(reuses, TORCH, at)) == "same buffer"
    assert "aliases input: the result lies in the memory of argument 3" in run(aliases, TORCH, at).reason


def test_results_of_each_size_lie_between_guard_bands() -> None:
    with Poison([12, 20]):
        three, four, five = torch.empty(3), torch.empty(4), torch.empty(5)
    assert [has_bands(each) for each in (three, four, five)] == [True, False, True]


FILE = """import torch

def attention_grad(q, k, v, do, *, causal=False, sm_scale=None):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    k_all, v_all = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    o = torch.softmax(q @ k_all.mT * q.shape[-1] ** -0.5, -1) @ v_all
    return torch.autograd.grad(o, (q, k, v), do)
"""


@pytest.mark.thorough
def test_a_brought_file_is_checked_and_timed_in_its_process(tmp_path: Any) -> None:
    session = Session(Device("cpu", name="CPU"), lambda started: None)
    case = problem("attention_grad", SHAPE).case
    for text, reason in ((FILE, ""), (FILE.replace("autograd.grad(o, (q,", "autograd.grad(2 * o, (q,"), "value: at d")):
        reference = external(write(tmp_path / f"mine{len(reason)}.py", text), operation="attention_grad").reference
        reply = session.handle(CheckRequest(case, reference, 0, 60.0))
        assert isinstance(reply, CheckReply)
        assert reply.status == ("wrong" if reason else "ok")
        assert reply.reason.startswith(reason)
        if not reason:
            timed = session.handle(TimeExternalRequest(case, reference, 0, "cold", False, "", 0.0))
            assert isinstance(timed, TimeReply)
            assert next(iter(timed.timings.values())).device_us
    session.external.close()
