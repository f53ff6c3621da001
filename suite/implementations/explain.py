"""Why something failed, in one line that a person can act on: what was asked for, what there was, and where."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback

from suite import hardware
from suite.core.paths import ROOT
from suite.core.text import one_line

LONGEST = 500
LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
OURS = f"{ROOT / 'suite'}{os.sep}"
ADVICE = re.compile(
    r"Including non-PyTorch memory|If reserved but unallocated|CUDA kernel errors might be async"
    r"|Search for `cudaError|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking"
)
"""Where torch's message goes on to general advice."""
RUINS_CONTEXT = re.compile(
    r"illegal memory access|misaligned address|illegal instruction|unspecified launch failure|device-side assert"
    r"|ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|illegal address",
    re.IGNORECASE,
)
OUT_OF_MEMORY = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation|not enough memory|can't allocate memory", re.IGNORECASE
)


def reason(error: BaseException, device_type: str) -> str:
    """`RuntimeError: what it says (kernel.py:12)`, and for memory how much there was."""
    return what(error, device_type) + where(error)


def what(error: BaseException, device_type: str) -> str:
    """The same without the place."""
    text = one_line(ADVICE.split(str(error), maxsplit=1)[0])
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if len(said) > LONGEST:
        said = f"{said[:LONGEST]}..."
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        said += _memory(device_type if not isinstance(error, MemoryError) and "CPU" not in text else "cpu", text)
    elif RUINS_CONTEXT.search(text):
        said += "; this ruins the process's CUDA context, so that its worker was replaced"
    return said


def _memory(device_type: str, text: str) -> str:
    """How much memory there is, unless the text says it."""
    if "total capacity" in text:
        return ""
    try:
        if device_type != "cuda":
            free = hardware.free_host_bytes()
            return "" if free is None else f"; {free / 2**30:,.1f} GiB of host memory are free"
        available, total = sys.modules["torch"].cuda.mem_get_info()
        return f"; {available / 2**30:,.1f} of the device's {total / 2**30:,.1f} GiB are free"
    except Exception:  # a device that can no longer be asked
        return ""


def where(error: BaseException) -> str:
    """` (kernel.py:12)`: the innermost line of the traceback that belongs neither to a library nor to us, if any."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    found = ([frame for frame in frames if is_own(frame[0])] or frames)[-1:]
    return f" ({os.path.basename(found[0][0])}:{found[0][1]})" if found else ""


def place(dump: str) -> str:
    """` at kernel.py:12`: the same for what faulthandler says, where the innermost comes first; empty if none is."""
    frames: list[tuple[str, str]] = re.findall(r'^\s*File "(.+)", line (\d+) in ', dump, re.MULTILINE)
    own = [frame for frame in frames if is_own(frame[0])]
    return f" at {one_line(os.path.basename(own[0][0]))}:{own[0][1]}" if own else ""


def is_own(path: str) -> bool:
    """Whether a line of code is an implementation's own."""
    return not path.startswith((*LIBRARIES, OURS, "<frozen", "<string>"))
