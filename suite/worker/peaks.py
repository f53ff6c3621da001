"""Measures the peaks of the device in a worker, for a run in which a row is faster than the known ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from suite import hardware
from suite.core.errors import SuiteError
from suite.core.text import one_line
from suite.worker.protocol import Failed, PeaksReply, PeaksRequest

if TYPE_CHECKING:
    import torch


def measured_peaks(request: PeaksRequest, device: torch.device, on_step: Callable[[], None]) -> PeaksReply | Failed:
    """The reply to `request`. `on_step` is called before each step."""
    import torch

    from suite.timing import peaks

    is_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if is_gpu else hardware.memory_bytes("cpu")
    try:
        contents = peaks.measure(device, request.name, free, {}, lambda phase: on_step())
    except SuiteError as error:
        return Failed(one_line(error), None)
    return PeaksReply(json.dumps(contents, allow_nan=False))
