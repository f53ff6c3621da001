"""An adapter forgets what is kept for later calls, and captures calls into a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from suite import frameworks
from suite.hardware.device import Device


def test_kept_calls_are_forgotten(where: Device) -> None:
    from cuda_ref._runtime import kept as _kept
    from cuda_ref.vector_add import vector_add

    for _ in range(3):
        vector_add(torch.ones(4), torch.ones(4))
    assert _kept._thread.plans
    frameworks.get("cuda").forget_calls()
    assert not _kept._thread.plans
    frameworks.get("torch").forget_calls()
    frameworks.get("numpy").forget_calls()


@pytest.mark.gpu
def test_a_captured_call_is_replayed_as_often_as_it_was_issued() -> None:
    x = torch.zeros(4, device="cuda")
    replay = frameworks.get("torch").capture(lambda: x.add_(1), 5)
    assert replay is not None
    replay()
    replay()
    assert x.tolist() == [10.0] * 4


@pytest.mark.gpu
def test_a_call_that_waits_cannot_be_captured() -> None:
    x = torch.ones(4, device="cuda")
    assert frameworks.get("torch").capture(lambda: x.sum().item(), 2) is None
    assert torch.rand(2, device="cuda").shape == (2,)  # torch alone refuses random numbers after such a capture
    assert (x + 1).tolist() == [2.0] * 4
    assert frameworks.get("numpy").capture(lambda: None, 2) is None
