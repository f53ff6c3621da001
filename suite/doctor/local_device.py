"""Uses the device in this process, without a worker, for commands that run no implementation under test."""

from __future__ import annotations

import os
import sys
from typing import Any

from suite.core.errors import SuiteError
from suite.core.package import command
from suite.hardware.device import Device


def torch_device(where: Device) -> Any:
    """The `torch.device` of `where`, made current. Must be called before anything initializes CUDA.

    Raises `SuiteError` if torch is missing or cannot use the device.
    """
    if where.type == "cuda" and "torch" not in sys.modules:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML, from which the index of `where` comes
    try:
        import torch
    except ImportError as error:
        raise SuiteError(f"torch cannot be imported ({error}): {command()} doctor says how to get it") from error
    if where.type != "cuda":
        return torch.device(where.type)
    if not torch.cuda.is_available():
        raise SuiteError(f"torch {torch.__version__} cannot use {where.name}: {command()} doctor says what to install")
    torch.cuda.set_device(where.index)
    return torch.device("cuda", where.index)
