"""Renders one Markdown page of runs: the best row of each way to write a kernel, by operation."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from suite import ops
from suite.core.paths import ROOT
from suite.report.load import Run
from suite.report.provenance import headline
from suite.report.ranking import CaseResult, ranked_cases
from suite.results.render import number, pipe_table, plain
from suite.results.render.labels import short_case, short_dtype
from suite.results.row import Row, Status

MADE_BY = "<!-- made by the command below -->"
"""The first line of the page. A file without it is not replaced."""
GRADIENT = "_grad"
"""End of the names of operations that compute a gradient, forward and backward together."""
NONE = "none"
WAYS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("XLA", lambda row: row.implementation == "jax"),
    ("Pallas", lambda row: row.is_ours and row.implementation.startswith("jax/")),
    ("torch", lambda row: row.implementation == "torch"),
    ("torch.compile", lambda row: row.implementation == "torch/compile"),
    ("Triton", lambda row: row.is_ours and row.implementation.partition("/")[0] == "triton"),
    ("CUDA", lambda row: row.is_ours and row.implementation.partition("/")[0] == "cuda"),
)
"""The columns, each with its rows. The fastest of them counts."""
LIBRARY = "other library"
HEAD = """\
# JAX against torch, by operation

The tables have the best time of each way to write a kernel: XLA's compilation of the operation in JAX, kernels in
Pallas, torch eager, `torch.compile`, and this suite's kernels in Triton and CUDA. In brackets is the variant, if it is
not the plain one. The fastest is bold. `~` is too noisy to rank. `{none}`: there is no such row.

A large call is the operation's case with the most work, a small one that with the least, among the cases that most
ways have. If an operation has only one such case, it is in all tables.
"""
SEVERAL = "An operation is shown from the first of these runs that has times of it."


def framework_page(runs: Sequence[Run]) -> str:
    """The page of `runs`, each operation from the first run that has times of it."""
    results = list(_first_results(runs))
    small, large = _by_size(results, min), _by_size(results, max)
    with_card = len({each.first.device for each in results}) > 1
    parts = [MADE_BY, "", HEAD.format(none=NONE), *_provenance(runs), ""]
    for title, chosen, column in (
        ("Large calls: device us", large, "device_us"),
        ("Small calls: device us", small, "device_us"),
        ("Small calls: host us until a call of a loop returns", small, "dispatch_us"),
        ("Small calls: host us until a single result is ready", small, "latency_us"),
    ):
        for kind, of_kind in (("", False), (", gradients", True)):
            found = [each for each in chosen if each.first.row.operation.endswith(GRADIENT) is of_kind]
            found = [each for each in found if any(getattr(row, column) for row in each.standing.timed)]
            parts += _section(f"{title}{kind}", found, column, with_card)
    parts += _peers(runs)
    return "\n".join(parts)


def _first_results(runs: Sequence[Run]) -> Iterator[CaseResult]:
    """The cases with times. Runs after the first that has an operation are left out for it."""
    shown: set[str] = set()
    for run in runs:
        found = [each for each in ranked_cases(run.on_its_device) if any(entry.timed for entry in each.entries)]
        yield from (each for each in found if each.first.row.operation not in shown)
        shown |= {each.first.row.operation for each in found}


def _provenance(runs: Sequence[Run]) -> Iterator[str]:
    """The lines that name the runs, and the command that makes the page from them."""
    paths = [run.path.resolve() for run in runs]
    shown = [path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path) for path in paths]
    several = len(runs) > 1
    for run, path in zip(runs, shown, strict=True):
        text = f"- {path}, {run.device}: {headline(run)}" if several else headline(run)
        yield from wrap(plain(text), 110, subsequent_indent="  " if several else "")
    if several:
        yield from ("", SEVERAL)
    yield from ("", "```", *_command(shown), "```")


def _command(paths: Sequence[str]) -> list[str]:
    words = ["python", "-m", "suite", "report", *map(shlex.quote, paths), "--frameworks", "PATH"]
    lines = wrap(" ".join(words), 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _by_size(results: Iterable[CaseResult], choose: Callable[..., CaseResult]) -> list[CaseResult]:
    """One case of each operation, the one with the least or the most work.

    It is chosen from the run's own tables if they have the operation, in bfloat16 if there are such cases, and from the
    cases for which most ways have a time.
    """
    found = []
    for name in ops.names():
        cases = [each for each in results if each.first.row.operation == name]
        cases = [each for each in cases if not each.first.table] or cases
        cases = [each for each in cases if each.first.row.dtype == "bfloat16"] or cases
        most = max(map(_ways_timed, cases), default=0)
        cases = [each for each in cases if _ways_timed(each) == most]
        if cases:
            found.append(choose(cases, key=_work))
    return found


def _work(result: CaseResult) -> tuple[float, float]:
    """The flops and bytes that the case needs, to three digits, since older tables have them as rates only."""
    flops, nbytes = (max(getattr(entry, name) for entry in result.entries) for name in ("flops", "bytes"))
    return float(f"{flops:.3g}"), float(f"{nbytes:.3g}")


def _ways_timed(result: CaseResult) -> int:
    return sum(any(belongs(row) for row in result.standing.timed) for _, belongs in WAYS)


def _section(title: str, results: Sequence[CaseResult], column: str, with_card: bool) -> list[str]:
    if not results:
        return []
    heads = ["operation", "case", *(["card"] if with_card else []), *(name for name, _ in WAYS), LIBRARY]
    body = []
    for result in results:
        row, card = result.first.row, result.first.device.removeprefix("NVIDIA ")
        texts = [row.operation, f"{short_case(row.case)} {short_dtype(row)}", *([card] if with_card else [])]
        body.append([*map(plain, texts), *_cells(result, column)])
    return [f"## {title}", "", pipe_table(heads, body, right={*heads} - {"operation", "case", "card"}), ""]


def _cells(result: CaseResult, column: str) -> list[str]:
    """The best row of each way, as text."""
    groups = [[row for row in result.rows if belongs(row)] for _, belongs in WAYS]
    used = {id(row) for group in groups for row in group}
    groups.append([row for row in result.rows if row.vendor and id(row) not in used])
    best = [_best(group, result, column) for group in groups]
    values = [value for row in best if row is not None and (value := getattr(row, column)) and not row.noisy]
    return [_cell(row, group, column, min(values, default=0.0)) for row, group in zip(best, groups, strict=True)]


def _best(rows: Sequence[Row], result: CaseResult, column: str) -> Row | None:
    """The row with the least value of `column`, a noisy one only if there is no other; None if none has a value."""
    known = [row for row in rows if row in result.standing.timed and getattr(row, column)]
    return min(known, key=lambda row: (row.noisy, getattr(row, column)), default=None)


def _cell(row: Row | None, group: Sequence[Row], column: str, least: float) -> str:
    if row is None:
        reasons = dict.fromkeys(str(each.status) for each in group if each.status is not Status.OK)
        return ", ".join(reasons) or ("" if group else NONE)
    value = getattr(row, column)
    text = number(value, 4)
    text = f"{text} ~" if row.noisy else f"**{text}**" if value == least else text
    variant = (
        row.implementation if row.vendor and row.implementation.count("/") else row.implementation.partition("/")[2]
    )
    return f"{text} ({plain(variant)})" if variant and variant != "torch/compile" else text


def _peers(runs: Sequence[Run]) -> list[str]:
    """The rows of public kernel libraries: their times beside the fastest row, or the command that installs them."""
    lines = list(_peer_lines(runs))
    if not lines:
        return []
    heads = ["library", "row", "operation", "cases", "times as fast as the best vendor", "not timed"]
    return ["## Public kernel libraries", "", pipe_table(heads, lines, right={"cases"}), ""]


def _peer_lines(runs: Sequence[Run]) -> Iterator[list[str]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in (entry.row for run in runs for entry in run.on_its_device if entry.row.peer):
        groups.setdefault((row.peer, row.implementation, row.operation), []).append(row)
    for (peer, name, operation), rows in groups.items():
        ratios = [row.vs_best for row in rows if row.vs_best]
        span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        reasons = dict.fromkeys(f"{row.status}: {row.reason}" for row in rows if row.status is not Status.OK)
        yield [plain(peer), plain(name), plain(operation), str(len(rows)), span, plain("; ".join(reasons))]


def is_ours(contents: bytes) -> bool:
    """True for the contents of a page that `framework_page` made."""
    return contents.startswith(MADE_BY.encode())


def page_path(given: Path) -> Path:
    """The file to write: `given`, or `frameworks.md` in it if it is a folder."""
    return given / "frameworks.md" if given.is_dir() else given
