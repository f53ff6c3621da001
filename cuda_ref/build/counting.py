"""Counts of the warps of emulated kernels: those that host/counted.h writes, and the arithmetic of basic blocks."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Counts:
    """Counts of all launches of a kernel. Each request, atomic and barrier is that of a warp, not of a thread."""

    kernel: str
    launches: int
    blocks: int
    warps: int
    loads: int
    """Requests to load global memory."""
    load_sectors: int
    """Sectors of 32 bytes that they touch."""
    stores: int
    store_sectors: int
    shared_loads: int
    """Requests to load shared memory."""
    shared_stores: int
    conflicts: int
    """Wavefronts of requests to shared memory beyond those that their width needs."""
    atomics: int
    """Atomic operations, in global and shared memory."""
    barriers: int
    divergent: int
    """Branches at which the lanes of a warp part."""
    flops: int | None = None
    """Additions and multiplications of threads, two for each fma; None if objdump is not installed."""


FIELDS = tuple(field.name for field in fields(Counts) if field.name not in ("kernel", "flops"))
"""The numbers in a line of the file, in its order."""


def read(path: Path, library: Path) -> list[Counts]:
    """The counts in a file that the functions of `library` have written, one for each kernel."""
    found: list[Counts] = []
    for kind, *words in (line.split("\t") for line in path.read_text().splitlines()):
        if kind == "kernel":
            found.append(Counts(words[0], *map(int, words[1:]), flops=0))
            continue
        flops = flops_of_block(library, int(words[0], 16))
        before = found[-1].flops
        total = None if flops is None or before is None else before + flops * int(words[1])
        found[-1] = replace(found[-1], flops=total)
    return found


def total(counts: Sequence[Counts]) -> Counts | None:
    """The sums over all kernels; None without any."""
    if not counts:
        return None
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in counts) for name in FIELDS}
    flops = [each.flops for each in counts]
    return Counts("all", **sums, flops=None if None in flops else sum(filter(None, flops)))


Instruction = tuple[str, str, int | None]
"""Mnemonic, operands, and the address of the next instruction."""

_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:rep\s+|bnd\s+|notrack\s+)*(\S+)\s*(.*)$")
_ONE = re.compile(r"v?(?:add|sub|mul)(ss|sd|ps|pd)|f(?:add|sub|mul|nmul)")
_FMA = re.compile(r"vfn?m(?:add|sub)\d+(?:ss|sd)|fn?m(?:add|sub)")
_BLOCK_BEGINS = "__sanitizer_cov_trace_pc"
_PACKED = {"ps": 4, "pd": 2}


def flops_of_block(library: Path, address: int) -> int | None:
    """Additions and multiplications in the basic block that begins at an address; None if objdump is not installed.

    The block ends at the next call of the function that counts blocks, or at a return.
    """
    code = disassembly(library)
    if code is None:
        return None
    count, seen, at = 0, set[int](), address
    while at in code and at not in seen:
        seen.add(at)
        name, operands, following = code[at]
        if _BLOCK_BEGINS in operands or name.startswith("ret"):
            break
        count += _flops(name, operands)
        target = re.match(r"([0-9a-f]+)\b", operands)
        if name in ("jmp", "b") and target:
            following = int(target[1], 16)
        if following is None:
            break
        at = following
    return count


def _flops(name: str, operands: str) -> int:
    if name.startswith(("call", "bl")):
        return 2 * bool(re.search(r"<fmaf?(?:@|>)", operands))
    if _FMA.fullmatch(name):
        return 2
    found = _ONE.fullmatch(name)
    return _PACKED.get(found[1], 1) if found else 0


@lru_cache(maxsize=64)
def disassembly(library: Path) -> dict[int, Instruction] | None:
    """The instructions of a library by address; None if objdump is not installed."""
    try:
        done = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    lines = [match for match in map(_LINE.match, done.stdout.splitlines()) if match]
    return dict(_instructions(lines))


def _instructions(lines: Sequence[re.Match[str]]) -> Iterable[tuple[int, Instruction]]:
    following: list[int | None] = [int(line[1], 16) for line in lines[1:]]
    for line, after in zip(lines, [*following, None], strict=True):
        yield int(line[1], 16), (line[2], line[3], after)
