"""Reports of compute-sanitizer that are not errors: of copies whose order or writes a tool does not follow.

Such a report is left out only where probe.cu, run under the same tool of the same version, shows that the tool reports
the like of a program that is right, and does its work otherwise.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_ref import compiler

PROBE = Path(__file__).parent / "probe.cu"
ARCH = "sm_90a"
TIMEOUT_S = 60.0
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


@dataclass(frozen=True)
class Known:
    """Reports of a tool on one kernel of an operation, and what tells them from errors.

    right: cases of the probe that are right, but are reported as this kernel is. controls: a case that is right, and
    one that is wrong, which the tool tells apart.
    """

    tool: str
    operation: str
    kernel: str
    right: tuple[str, ...]
    controls: tuple[str, str]
    about: str

    def note(self) -> str:
        """For the row of a run without this kernel."""
        cases = " and ".join(self.right)
        return f"without {self.kernel}: {self.about}, which the tool does not follow ({cases} of sanitizer/probe.cu)"


KNOWN = (
    Known(
        "initcheck",
        "attention_grad",
        "finish",
        ("bulk_store", "bulk_add"),
        ("plain", "unwritten"),
        "reads of sums that bulk copies have written",
    ),
)


def shown(known: Known, errors: Mapping[str, int | None]) -> bool:
    """Whether the probe's counts of errors, by case, show that such reports are not errors."""
    clean, wrong = (errors.get(case) for case in known.controls)
    return clean == 0 and bool(wrong) and all(bool(errors.get(case)) for case in known.right)


def probed(known: Known, sanitizer: str) -> dict[str, int | None]:
    """The errors that the tool counts in each case of the probe; None where it did not count."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe"
        command = [compiler.nvcc() or "nvcc", compiler.arch_flag(ARCH), *compiler.NVCC_FLAGS]
        include = PROBE.parents[2] / "cuda_ref"
        subprocess.run([*command, "-I", str(include), str(PROBE), "-o", str(program)], check=True, capture_output=True)
        return {case: _errors(sanitizer, known.tool, program, case) for case in (*known.right, *known.controls)}


def _errors(sanitizer: str, tool: str, program: Path, case: str) -> int | None:
    command = [sanitizer, "--tool", tool, str(program), case]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    counts = SUMMARY.findall(done.stdout + done.stderr)
    return int(counts[-1]) if counts else None


def left_out(
    tool: str, operation: str, sanitizer: str, probe: Callable[[Known, str], Mapping[str, int | None]] = probed
) -> list[Known]:
    """The kernels of an operation that the tool is told to leave out."""
    found = [known for known in KNOWN if (known.tool, known.operation) == (tool, operation)]
    return [known for known in found if shown(known, probe(known, sanitizer))]
