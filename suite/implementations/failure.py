"""An exception as one line: type, message and source line, and the free memory if memory ran out."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback

from suite import frameworks, hardware
from suite.core.paths import ROOT
from suite.core.text import one_line

MAX_MESSAGE_LENGTH = 500
"""Characters of a message that a row shows."""
LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
SUITE = f"{ROOT / 'suite'}{os.sep}"
KERNELS = tuple(f"{ROOT / frameworks.get(name).folder}{os.sep}" for name in frameworks.names())
"""The folders of the built-in implementations. An installed package has them among the libraries."""
ADVICE = re.compile(
    r"Including non-PyTorch memory|If reserved but unallocated|CUDA kernel errors might be async"
    r"|Search for `cudaError|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking"
)
"""Beginning of the general advice that ends torch's messages."""
RUINS_CONTEXT = re.compile(
    r"illegal memory access|misaligned address|illegal instruction|unspecified launch failure|device-side assert"
    r"|ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|illegal address",
    re.IGNORECASE,
)
OUT_OF_MEMORY = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation|not enough memory|can't allocate memory", re.IGNORECASE
)


def describe(error: BaseException, device_type: str) -> str:
    """`RuntimeError: message (kernel.py:12)`; for exhausted memory also how much is free on a device of that type."""
    return describe_without_place(error, device_type) + place_of(error)


def describe_without_place(error: BaseException, device_type: str) -> str:
    """`describe` without the source line."""
    message = one_line(ADVICE.split(str(error), maxsplit=1)[0])
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if len(text) > MAX_MESSAGE_LENGTH:
        text = f"{text[:MAX_MESSAGE_LENGTH]}..."
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(message):
        on_host = isinstance(error, MemoryError) or "CPU" in message
        text += _free_memory("cpu" if on_host else device_type, message)
    elif RUINS_CONTEXT.search(message):
        text += "; this ruins the process's CUDA context, so that its worker was replaced"
    return text


def _free_memory(device_type: str, message: str) -> str:
    """The amount of free memory, unless the message has it."""
    if "total capacity" in message:
        return ""
    try:
        if device_type != "cuda":
            free = hardware.free_host_bytes()
            return "" if free is None else f"; {free / 2**30:,.1f} GiB of host memory are free"
        available, total = sys.modules["torch"].cuda.mem_get_info()
        return f"; {available / 2**30:,.1f} of the device's {total / 2**30:,.1f} GiB are free"
    except Exception:  # a broken device answers no query
        return ""


def place_of(error: BaseException) -> str:
    """` (kernel.py:12)`: the innermost traceback line in an implementation's file, else the innermost line."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    found = ([frame for frame in frames if _is_implementation(frame[0])] or frames)[-1:]
    return f" ({os.path.basename(found[0][0])}:{found[0][1]})" if found else ""


def place_in_stack(dump: str) -> str:
    """` at kernel.py:12`: the innermost line of faulthandler's dump in an implementation's file; empty if none."""
    frames: list[tuple[str, str]] = re.findall(r'^\s*File "(.+)", line (\d+) in ', dump, re.MULTILINE)
    found = next((frame for frame in frames if _is_implementation(frame[0])), None)  # the innermost comes first
    return f" at {one_line(os.path.basename(found[0]))}:{found[1]}" if found else ""


def unwrapped(error: BaseException) -> BaseException:
    """The exception of a kernel that Triton's interpreter ran, without the interpreter's own around it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_assertion(error: BaseException) -> bool:
    """True for a failed `assert`, and for a failed `tl.static_assert` of a kernel, interpreted or compiled."""
    found: BaseException | None = unwrapped(error)
    while found is not None:
        if isinstance(found, AssertionError) or type(found).__name__ == "CompileTimeAssertionFailure":
            return True
        found = found.__cause__
    return False


def unsupported_reason(error: NotImplementedError) -> str:
    """The message of an implementation about a case that it does not cover."""
    return one_line(error)[:MAX_MESSAGE_LENGTH] or "NotImplementedError"


def _is_implementation(path: str) -> bool:
    """True for a source file that belongs neither to a library nor to the suite."""
    return path.startswith(KERNELS) or not path.startswith((*LIBRARIES, SUITE, "<frozen", "<string>"))
