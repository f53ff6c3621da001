"""The numbers of docs/ladder.md, and the sizes in the README's prose, are those of the committed results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache

from suite.core.paths import ROOT
from suite.results.csv_file import read_rows
from suite.results.render import crossovers
from suite.results.row import Row

RESULTS = ROOT / "results" / "nvidia-h200"
TEXT = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
SQUARE, SKINNY = "M=4096,N=4096,K=4096", "M=16,N=14336,K=4096"
ATTENTION = "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128"
ARITHMETIC = {"float32": ("float32", "ieee"), "bfloat16": ("bfloat16", "ieee"), "tf32": ("float32", "tf32")}


@cache
def rows(operation: str) -> dict[tuple[str, str, str, str], Row]:
    return {(r.case, r.dtype, r.precision, r.implementation): r for r in read_rows(RESULTS / f"{operation}.csv")}


def matmul(implementation: str, arithmetic: str, case: str = SQUARE) -> Row:
    return rows("matmul" if case == SQUARE else "matmul_large/matmul")[case, *ARITHMETIC[arithmetic], implementation]


def tables() -> Iterator[list[dict[str, str]]]:
    """The tables of the page: a dict for each line, by head; a head that comes again has a 2."""
    for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        heads, _, *body = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines())
        names = [head if head not in heads[:i] else f"{head} 2" for i, head in enumerate(heads)]
        yield [dict(zip(names, line, strict=True)) for line in body]


def same(cell: str, value: float | None) -> bool:
    """Whether a cell is this value, rounded to the cell's digits. An empty cell says nothing."""
    if not cell:
        return True
    _, _, decimals = cell.partition(".")
    return value is not None and abs(float(cell.replace(",", "")) - value) <= 0.501 * 10.0 ** -len(decimals)


def name_of(cell: str) -> str:
    found = re.match(r"\[([\w/]+)\]", cell)
    return found[1] if found else ""


def test_the_rungs_of_matmul() -> None:
    rungs, special, *_ = tables()
    name = ""
    for line in rungs:
        name = name_of(line["rung"]) or name
        row = matmul(name, line["arithmetic"])
        for head, value in (("us", row.device_us), ("TFLOP/s", row.tflops), ("vs best", row.vs_best)):
            assert same(line[head], value), (line, head, value)
    for line in special:
        case, arithmetic = (SKINNY, "bfloat16") if line["case"].startswith("16 x") else (SQUARE, "float32")
        row = matmul(name_of(line["rung"]), arithmetic, case)
        for head, value in (("us", row.device_us), ("TFLOP/s", row.tflops), ("vs best", row.vs_best)):
            assert same(line[head], value), (line, head, value)


def test_gains_are_the_ratios_of_the_rungs() -> None:
    before: dict[str, float] = {}
    for line in next(tables()):
        us = float(line["us"].replace(",", ""))
        if line["gain"]:
            assert same(line["gain"], before[line["arithmetic"]] / us), line
        before[line["arithmetic"]] = us


def test_other_frameworks() -> None:
    (others,) = (each for each in tables() if "implementation" in each[0] and "tf32" in each[0])
    for line in others:
        for arithmetic in ("bfloat16", "tf32"):
            value = matmul(name_of(line["implementation"]), arithmetic).vs_best
            assert same(line[arithmetic], value), (line, arithmetic, value)


def test_the_rungs_of_attention() -> None:
    rungs, others = (each for each in tables() if "causal, us" in each[0])
    for line in rungs + others:
        for case, us, best in ((ATTENTION, "us", "vs best"), (f"{ATTENTION},causal", "causal, us", "causal 2")):
            row = rows("attention")[case, "bfloat16", "ieee", name_of(line.get("rung") or line["implementation"])]
            assert same(line[us], row.device_us), (line, us, row.device_us)
            assert same(line[best if best in line else "causal"], row.vs_best), (line, best, row.vs_best)


def fastest_vendor(arithmetic: str) -> Row:
    found = [r for key, r in rows("matmul").items() if key[:3] == (SQUARE, *ARITHMETIC[arithmetic]) and r.vendor]
    return min((row for row in found if row.device_us), key=lambda row: row.device_us or 0.0)


def test_the_times_in_the_text() -> None:
    text = " ".join(TEXT.split())
    found = re.search(
        r"The fastest vendor implementation takes ([\d,.]+) us in float32 \(([\d.]+) TFLOP/s\), "
        r"([\d,.]+) us in bfloat16 \(([\d.]+)\) and ([\d,.]+) us in tf32 \(([\d.]+)\)",
        text,
    )
    assert found
    for position, arithmetic in enumerate(ARITHMETIC):
        row = fastest_vendor(arithmetic)
        assert same(found[2 * position + 1], row.device_us), arithmetic
        assert same(found[2 * position + 2], row.tflops), arithmetic
    found = re.search(r"the vendor \(cuDNN through torch\) takes ([\d.]+) and ([\d.]+) us there", text)
    assert found
    for cell, case in zip(found.groups(), (ATTENTION, f"{ATTENTION},causal"), strict=True):
        assert same(cell, rows("attention")[case, "bfloat16", "ieee", "torch/cudnn"].device_us)
    assert f"{matmul('triton/split', 'float32').vs_best:.3f} of the vendor's float32 speed at 4096" in text


def test_the_size_from_which_the_gpu_wins() -> None:
    text = " ".join((ROOT / "docs" / "running.md").read_text(encoding="utf-8").split())
    (found,) = crossovers(read_rows(RESULTS / "sweep" / "vector_add.csv"))
    there, *copied = found.split(";")
    (size,) = re.findall(r"from N=(\d+) on", there)
    assert re.search(rf"the GPU wins from 2\^{int(size).bit_length() - 1} elements on", text)
    assert copied
    assert all("at none of these sizes" in each for each in copied)
    assert "It wins at no size where the data must be copied there and back" in text


def test_the_gpu_default_is_what_was_measured() -> None:
    pins = {}
    for line in (ROOT / "constraints-gpu.txt").read_text(encoding="utf-8").splitlines():
        pin, _, marker = line.partition(";")
        if not line.startswith("#") and "<" not in marker:
            name, _, version = pin.strip().partition("==")
            pins[name] = version
    packages = json.loads((RESULTS / "environment.json").read_text(encoding="utf-8"))["packages"]
    assert {name: pins.get(name) for name in packages} == packages
    assert (ROOT / "triton_kernels" / "tuned" / "nvidia-h200" / f"triton-{pins['triton']}.json").is_file()
