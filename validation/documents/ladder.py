"""docs/ladder.md: the numbers of the rungs, each beside the present name of its implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.results.row import Row
from validation.documents import ROOT
from validation.documents.rows import H200, RUNGS, of_case, rate, ratio, rows, us, vendor
from validation.documents.tables import Line, name_of, with_sentences, with_tables

PAGE = ROOT / "docs" / "ladder.md"
SQUARE, SKINNY = "M=4096,N=4096,K=4096", "M=16,N=14336,K=4096"
ATTENTION = "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128"
RECURRENCE, STEPS = "T=512,B=1,I=1024,H=1024", 512
LAYERS = {
    "56 x 56, 64": "N=256,H=56,W=56,C=64,K=64,R=3,S=3,stride=1,padding=1",
    "14 x 14, 256": "N=256,H=14,W=14,C=256,K=256,R=3,S=3,stride=1,padding=1",
}
ARITHMETIC = {"float32": ("float32", "ieee"), "bfloat16": ("bfloat16", "ieee"), "tf32": ("float32", "tf32")}
EARLIER_NAMES = {
    "matmul": {"triton/pipelined": "triton"},
    "attention": {"cuda/tiles": "cuda", "triton/specialized": "triton"},
    "attention,causal": {"cuda/tiles": "cuda", "triton/packed": "triton"},
    "attention_grad": {"cuda/tiles": "cuda", "triton/peeled": "triton"},
}
"""Names of today's lines in older tables: see docs/results.md."""


def row_of(table: str, implementation: str, *case: str, kind: str = "") -> Row | None:
    """Find the row of an implementation by its present name, or in an older table by its earlier name."""
    if not (H200 / f"{table}.csv").exists():
        return None
    lines = {each.implementation for each in rows(table)}
    earlier = {new: old for new, old in EARLIER_NAMES.get(kind or table, {}).items() if new not in lines}
    if implementation in earlier.values():  # there it is the name of another implementation
        return None
    name = earlier.get(implementation, implementation)
    return next((each for each in of_case(table, *case) if each.implementation == name), None)


def matmul(implementation: str, arithmetic: str, case: str = SQUARE) -> Row | None:
    table = "matmul" if case == SQUARE else "matmul_large/matmul"
    return row_of(table, implementation, case, *ARITHMETIC[arithmetic])


def attention(operation: str, implementation: str, causal: bool) -> Row | None:
    kind = operation + ",causal" * (causal and operation == "attention")
    return row_of(operation, implementation, ATTENTION + ",causal" * causal, "bfloat16", "ieee", kind=kind)


def gain(row: Row | None, above: Row | None) -> str:
    """Format the speed relative to the rung above."""
    if row is None or above is None or not row.device_us or not above.device_us:
        return ""
    value = above.device_us / row.device_us
    return f"{value:.1f}" if value >= 2.0 else f"{value:.2f}"


def unmeasured(cell: str) -> str:
    """Keep the mark of a number that is still to be measured."""
    return "?" if cell == "?" else ""


def matmul_rungs(lines: Sequence[Line]) -> None:
    above: dict[str, Row | None] = {}
    name = ""
    for line in lines:
        name = name_of(line) or name  # the cell may be "the same file"
        arithmetic = line["arithmetic"]
        row = matmul(name, arithmetic)
        cells = {"us": us(row), "TFLOP/s": rate(row), "gain": gain(row, above.get(arithmetic)), "vs best": ratio(row)}
        line |= {head: text or unmeasured(line[head]) for head, text in cells.items()}
        above[arithmetic] = row


def matmul_special(lines: Sequence[Line]) -> None:
    for line in lines:
        case, arithmetic = (SKINNY, "bfloat16") if line["case"].startswith("16 x") else (SQUARE, "float32")
        row = matmul(name_of(line), arithmetic, case)
        line |= {"us": us(row), "TFLOP/s": rate(row), "vs best": ratio(row)}


def matmul_frameworks(lines: Sequence[Line]) -> None:
    for line in lines:
        line |= {arithmetic: ratio(matmul(name_of(line), arithmetic)) or "?" for arithmetic in ("bfloat16", "tf32")}


def attention_rungs(lines: Sequence[Line]) -> None:
    """Fill the forward or backward ladder."""
    for line in lines:
        operation = "attention_grad" if "attention_grad" in next(iter(line.values())) else "attention"
        full, causal = (attention(operation, name_of(line), causal) for causal in (False, True))
        cells = {"us": us(full), "causal, us": us(causal), "vs best": ratio(full), "causal": ratio(causal)}
        line |= {head: text or unmeasured(line[head]) for head, text in cells.items()}


def convolution_rungs(lines: Sequence[Line]) -> None:
    for line in lines:
        for head, case in LAYERS.items():
            row = row_of(f"{RUNGS}/conv2d", name_of(line), case, "bfloat16", "ieee")
            line[head] = ratio(row, 2 if row and (row.vs_best or 0.0) >= 0.01 else 3)


def step(implementation: str) -> str:
    """Format the time of one step of the LSTM, in us."""
    row = row_of(f"{RUNGS}/lstm", implementation, RECURRENCE, "bfloat16", "ieee")
    return f"{row.device_us / STEPS:.1f}" if row and row.device_us else ""


def recurrence_rungs(lines: Sequence[Line]) -> None:
    for line in lines:
        line["us per step"] = step(name_of(line))


FILLS = {
    frozenset({"arithmetic", "gain"}): matmul_rungs,
    frozenset({"case", "TFLOP/s"}): matmul_special,
    frozenset({"bfloat16", "tf32"}): matmul_frameworks,
    frozenset({"causal, us"}): attention_rungs,
    frozenset(LAYERS): convolution_rungs,
    frozenset({"us per step"}): recurrence_rungs,
}
"""Functions that fill a table, by its heads."""


def sentences() -> Iterator[tuple[str, list[str]]]:
    """Yield patterns of sentences, a group for each number, and the numbers."""
    vendors = [vendor(of_case("matmul", SQUARE, *kind)) for kind in ARITHMETIC.values()]
    yield (
        r"vendor implementation takes ([\d,.]+) us in float32 \(([\d.]+) TFLOP/s\), ([\d,.]+) us in bfloat16 "
        r"\(([\d.]+)\) and ([\d,.]+) us in tf32 \(([\d.]+)\)",
        [text(row) for row in vendors for text in (us, rate)],
    )
    cudnn = [attention("attention", "torch/cudnn", causal) for causal in (False, True)]
    yield r"\(cuDNN through torch\) takes ([\d,.]+) and ([\d,.]+) us there", [us(row) for row in cudnn]
    yield r"([\d.]+) times as fast as the vendor in float32 at 4096", [ratio(matmul("triton/split", "float32"))]
    yield r"cuDNN takes ([\d.]+) us per step", [step("torch")]


def filled(text: str) -> str:
    """Return the page with the numbers of the results. A sentence without results stays as it is."""
    return with_sentences(with_tables(text, FILLS), sentences())
