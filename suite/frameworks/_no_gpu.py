"""Stand-ins for a GPU that is not there, for users' files written for one.

A file may ask torch for the GPU's properties or put tensors on `cuda` when it is imported. On a machine without a GPU
its tensors are put on the CPU, and the questions are answered as by a device of compute capability 8.0.
`torch.cuda.is_available()` stays False: a file that asks chooses the CPU itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CAPABILITY = (8, 0)
MULTIPROCESSORS = 4
SHARED_BYTES = 163 << 10
"""Shared memory of a multiprocessor that one block can have, at that capability."""
PROPERTIES = SimpleNamespace(
    name="no GPU: this is a CPU",
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    multi_processor_count=MULTIPROCESSORS,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=SHARED_BYTES,
    shared_memory_per_multiprocessor=164 << 10,
    warp_size=32,
    total_memory=80 << 30,
    L2_cache_size=40 << 20,
)
STREAM = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
ANSWERS: Mapping[str, Callable[..., Any]] = {
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "synchronize": lambda device=None: None,
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_device_properties": lambda device=None: PROPERTIES,
    "get_device_name": lambda device=None: PROPERTIES.name,
    "current_stream": lambda device=None: STREAM,
    "device": lambda device=None: contextlib.nullcontext(),
    "stream": lambda stream=None: contextlib.nullcontext(),
}
"""Functions of `torch.cuda` that fail without a GPU, and their replacements."""
IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]


class _OnTheCpu(TorchFunctionMode):  # type: ignore[misc]
    """While entered, torch's functions use the CPU where a file names `cuda`."""

    def __init__(self, claims_cuda: bool) -> None:
        super().__init__()
        self._claims_cuda = claims_cuda

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if self._claims_cuda and func == IS_CUDA:
            return True
        named = {name: _redirected(value) for name, value in (kwargs or {}).items()}
        if named.get("pin_memory"):
            named["pin_memory"] = False
        return func(*map(_redirected, args), **named)


def _redirected(value: Any) -> Any:
    """The CPU for a device `cuda`, given as a device or by name; any other value unchanged."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


@contextlib.contextmanager
def stand_in(*, claims_cuda: bool = False) -> Iterator[None]:
    """While open, code for a GPU runs on the CPU as far as this module says.

    claims_cuda: `is_cuda` of a tensor is True, so that a file does not avoid its own kernel.
    """
    before = {name: getattr(torch.cuda, name) for name in ANSWERS}
    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, answer)
    try:
        with _OnTheCpu(claims_cuda):
            yield
    finally:
        for name, value in before.items():
            setattr(torch.cuda, name, value)
