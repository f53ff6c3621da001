"""Describes the kernels that a call ran, from its activities: names, launch configurations, theoretical occupancy."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby

from suite.hardware.occupancy import Limits, occupancy
from suite.timing.intervals import Activity

MAX_NAME_LENGTH = 72
"""The largest number of characters in a shortened name."""


def kernels_run(activities: Sequence[Activity]) -> str:
    """Shortened names, with the number of blocks and of threads per block.

    `splitKreduce_kernel<32, 16> [256 x 512]; memset`. Equal neighbours are counted: `2 x copy_kernel [8 x 128]`.
    """
    return _joined(activities, _short_text)


def kernel_details(activities: Sequence[Activity]) -> str:
    """Whole names, with the three dimensions of grid and block, registers and bytes of shared memory."""
    return _joined(activities, _whole_text)


def longest_occupancy(activities: Sequence[Activity], limits: Limits | None) -> float | None:
    """Theoretical occupancy of the longest kernel; None if there is no kernel or the device's limits are unknown."""
    kernels = [activity for activity in activities if activity.launch is not None]
    longest = max(kernels, key=lambda activity: activity.end - activity.start, default=None)
    if longest is None or longest.launch is None or limits is None:
        return None
    launch = longest.launch
    return occupancy(limits, launch.threads, launch.registers, launch.shared_bytes)


def _joined(activities: Sequence[Activity], text: Callable[[Activity], str]) -> str:
    runs = [(name, len(list(same))) for name, same in groupby(map(text, activities))]
    return "; ".join(f"{count} x {name}" if count > 1 else name for name, count in runs)


def _short_text(activity: Activity) -> str:
    if activity.launch is None:
        return shortened(activity.name)
    return f"{shortened(activity.name)} [{activity.launch.blocks} x {activity.launch.threads}]"


def _whole_text(activity: Activity) -> str:
    name, launch = demangled(activity.name), activity.launch
    if launch is None:
        return name
    grid, block = ("x".join(map(str, each)) for each in (launch.grid, launch.block))
    shared = f"{launch.shared_bytes} bytes of shared memory"
    return f"{name} (grid {grid}, block {block}, {launch.registers} registers, {shared})"


@cache
def _demangler() -> Callable[[bytes, None, None, object], int] | None:
    """The C++ library's `__cxa_demangle`; None if the library is missing."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    function: Callable[[bytes, None, None, object], int] = library.__cxa_demangle
    return function


@cache
def demangled(name: str) -> str:
    """A C++ symbol as the source writes it. Any other name is returned as it is."""
    demangle = _demangler()
    if not name.startswith("_Z") or demangle is None:
        return name
    status = ctypes.c_int(0)
    address = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not address:
        return name
    text = ctypes.string_at(address).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return text


@cache
def shortened(name: str) -> str:
    """A kernel's name without return type, parameters, namespaces and nested template arguments.

    `void at::native::reduce<512, at::Sum<float> >(int)` becomes `reduce<512, Sum>`.
    """
    name = re.sub(r"\{lambda\(.*?\)#\d+\}", "lambda", demangled(name)).replace("(anonymous namespace)::", "")
    kept, depth = "", 0
    for character in name:
        if character == "(" and depth == 0:
            break
        depth += character == "<"
        if depth <= 1:
            kept += character
        depth -= character == ">"
    kept = re.sub(r"\([^()]*\)", "", kept)  # casts, as in (int)4
    kept = re.sub(r"[\w~]+::", "", kept).removeprefix("void ").replace(" >", ">").strip()
    return kept if len(kept) <= MAX_NAME_LENGTH else f"{kept[: MAX_NAME_LENGTH - 3]}..."
