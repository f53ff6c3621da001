"""False reports of compute-sanitizer on copies whose order or writes a tool does not follow.

A report is left out only if a run of probe.cu under the same version of the same tool shows two facts: the tool reports
a right program in the same way, and it still finds a real error.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_ref.build import compiler

PROBE = Path(__file__).parent / "probe.cu"
CUDA = PROBE.parents[2] / "cuda_ref"
ARCH = "sm_90a"
TIMEOUT_S = 60.0
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


@dataclass(frozen=True)
class Known:
    """Reports of a tool on an operation, and the evidence that they are false.

    right: right cases of the probe that the tool reports like the operation. controls: a right case and a wrong one,
    which the tool distinguishes. kernels: parts of the names of kernels that the tool leaves out. source, replaced: a
    .cu that is built with other texts, in an order that the tool follows.
    """

    tool: str
    operation: str
    right: tuple[str, ...]
    controls: tuple[str, str]
    about: str
    kernels: tuple[str, ...] = ()
    source: str = ""
    replaced: tuple[tuple[str, str], ...] = ()

    def note(self) -> str:
        """The note in the row of a run that leaves such reports out."""
        return f"{self.about}, which the tool does not follow ({', '.join(self.right)} of sanitizer/probe.cu)"

    def changed(self, folder: Path) -> Path:
        """Write a copy of the source with the replacements."""
        path = folder / f"{self.source.replace('/', '_')}.cu"
        text = (CUDA / f"{self.source}.cu").read_text(encoding="utf-8")
        for old, new in self.replaced:
            if text.count(old) != 1:
                raise ValueError(f"{path.name} must have this text once, to be replaced: {old!r}")
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        return path


def _reads_of_bulk_copies(
    operation: str, what: str, *kernels: str, right: tuple[str, ...] = ("bulk_store",)
) -> Known:  # fmt: skip
    """Return the reports on kernels that read data written by bulk copies, which initcheck does not follow."""
    names = " and ".join(f"`{each}`" for each in kernels)
    about = f"without {names}: reads of {what} that bulk copies have written"
    return Known("initcheck", operation, right, ("plain", "unwritten"), about, kernels)


KNOWN = (
    Known(
        "racecheck",
        "attention_grad",
        right=("warps", "chain"),
        controls=("threads", "alone"),
        about="every reader of a stage says so, where one thread that has waited for all is enough",
        source="attention_grad/wgmma",
        replaced=(
            ("if (thread == 0) mbarrier_arrive(shared + P::EMPTY", "mbarrier_arrive(shared + P::EMPTY"),
            ("P::EMPTY + i * MBARRIER_BYTES, CONSUMERS)", "P::EMPTY + i * MBARRIER_BYTES, CONSUMERS * WARPGROUP)"),
        ),
    ),
    _reads_of_bulk_copies("attention_grad", "sums", "finish", right=("bulk_store", "bulk_add")),
    _reads_of_bulk_copies("linear_sigmoid", "a product", "bias_sigmoid"),
    _reads_of_bulk_copies("linear_sigmoid_grad", "dz", "matmul_short", "matmul_mma"),
    Known(
        "memcheck",
        "matmul",
        right=("partial",),
        controls=("whole", "past"),
        about="loads of single elements in the place of cp.async of less than 16 bytes",
        source="matmul/mma",
        replaced=(
            (
                "copy_async(to + r * Tile::PITCH + c * 16, from, left <= 0 ? 0 : left >= CHUNK ? 16 : 2 * left);",
                """uint16_t* const elements = reinterpret_cast<uint16_t*>(to + r * Tile::PITCH + c * 16);
    if (left >= CHUNK) copy_async(reinterpret_cast<char*>(elements), from, 16);
    for (int i = 0; left < CHUNK && i < CHUNK; ++i) {
        elements[i] = i < left ? reinterpret_cast<const uint16_t*>(from)[i] : uint16_t(0);
    }""",
            ),
        ),
    ),
)


def shown(known: Known, errors: Mapping[str, int | None]) -> bool:
    """True if the probe's counts of errors, by case, show that such reports are false."""
    clean, wrong = (errors.get(case) for case in known.controls)
    return clean == 0 and bool(wrong) and all(bool(errors.get(case)) for case in known.right)


def probed(known: Known, sanitizer: str) -> dict[str, int | None]:
    """Count the errors that the tool reports in each case of the probe; None where it did not count."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe"
        command = [compiler.nvcc() or "nvcc", compiler.arch_flag(ARCH), *compiler.NVCC_FLAGS]
        subprocess.run([*command, "-I", str(CUDA), str(PROBE), "-o", str(program)], check=True, capture_output=True)
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
    """Return the reports of a tool on an operation that the probe shows to be false."""
    return [known for known in known_of(tool, operation) if shown(known, probe(known, sanitizer))]


def known_of(tool: str, operation: str) -> list[Known]:
    return [known for known in KNOWN if (known.tool, known.operation) == (tool, operation)]
