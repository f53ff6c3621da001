"""Measuring in this process instead of in a worker, for the commands that run no implementation under test."""

from __future__ import annotations

import os
import sys
from typing import Any

from suite.core.errors import SuiteError
from suite.hardware.device import Device


def torch_device(where: Device) -> Any:
    """The `torch.device` of `where`, made current. To be called before anything asks CUDA for its devices.

    Raises `SuiteError` where torch cannot use it.
    """
    if where.type == "cuda" and "torch" not in sys.modules:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's, by which `where` was found
    try:
        import torch
    except ImportError as error:
        raise SuiteError(f"torch cannot be imported ({error}): python -m suite doctor says how to get it") from error
    if where.type != "cuda":
        return torch.device(where.type)
    if not torch.cuda.is_available():
        raise SuiteError(
            f"torch {torch.__version__} cannot use {where.name}: python -m suite doctor says what to install"
        )
    torch.cuda.set_device(where.index)
    return torch.device("cuda", where.index)


def array_bytes(most: int, free: int | None) -> int:
    """Size of a large array: `most`, or the power of two that leaves fifteen sixteenths of the free memory."""
    return most if free is None else min(most, 1 << max(16, (free // 16).bit_length() - 1))


def one_line(error: BaseException) -> str:
    """`RuntimeError: what it says`, without line breaks."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
