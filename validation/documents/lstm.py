"""docs/lab/lstm.md: the implementations of lstm in the committed table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.results.row import Row
from validation.documents import ROOT
from validation.documents.rows import command, find, ms, row, rows, span
from validation.documents.tables import Line, with_sentences, with_tables

PAGE = ROOT / "docs" / "lab" / "lstm.md"
ONE, LARGE = "T=512,B=1,I=1024,H=1024", "T=128,B=256,I=512,H=512"


def lines(table: Sequence[Line]) -> None:
    for line in table:
        case = ",".join(map("=".join, zip("TBIH", line["T, B, I, H"].split(", "), strict=True)))
        for head in list(line)[2:]:
            found = find("lstm", head.partition(" ")[0], case, line["dtype"])
            line[head] = f"{ms(found.device_us)} ({ms(found.latency_us)})" if found else ""


def by_latency() -> Iterator[float]:
    """Yield for each case the latency of cuDNN over the least of our implementations."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for each in rows("lstm"):
        cases.setdefault((each.case, each.dtype), []).append(each)
    for found in cases.values():
        (cudnn,) = (each.latency_us or 0.0 for each in found if each.implementation == "torch")
        yield cudnn / min(each.latency_us for each in found if each.latency_us and each.is_ours)


def step(case: str) -> str:
    """Format the time of a step of `cuda/persistent`, in us."""
    steps = int(case.partition(",")[0].removeprefix("T="))
    return f"{(row('lstm', 'cuda/persistent', case).device_us or 0.0) / steps:.1f}"


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    yield r"by `(python -m suite compare [^`]*)` under", [command("lstm")]
    yield r"B=1 takes ([\d.]+) us a step", [step(ONE)]
    yield r"each block waits for 32 others: ([\d.]+) us", [step(LARGE)]
    yield r"our fastest implementations are ([\d.]+) to ([\d.]+) times as fast", span(list(by_latency()), 1)
    large = [ms(row("lstm", each, LARGE).device_us) for each in ("cuda/wgmma", "torch")]
    yield r"by `compare`: `cuda/wgmma`; cuDNN \| ([\d.]+); ([\d.]+)", large


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_sentences(with_tables(text, {frozenset({"T, B, I, H", "torch (cuDNN)"}): lines}), sentences())
