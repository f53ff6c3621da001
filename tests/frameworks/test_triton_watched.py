"""Pointers out of bounds are found in Triton's interpreter, and loads and stores are counted.

Each kernel is a file of a user, which runs in an external process.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import call

FILE = """import torch, triton, triton.language as tl

@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = {load_a} + {load_b}
    {store}

def vector_add(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    add[(triton.cdiv(a.numel(), 256),)](a, b, out, a.numel(), BLOCK=256)
    return out
"""
RIGHT = {
    "load_a": "tl.load(a + offs, mask=offs < n)",
    "load_b": "tl.load(b + offs, mask=offs < n, other=0.0)",
    "store": "tl.store(out + offs, x, mask=offs < n)",
}
FAULTS = {
    "load": ({"load_a": "tl.load(a + offs)"}, ":6: loads index "),
    "second_load": ({"load_b": "tl.load(b + offs)"}, ":6: loads index "),
    "store": ({"store": "tl.store(out + offs, x)"}, ":7: stores index "),
    "mask_by_one": ({"store": "tl.store(out + offs, x, mask=offs <= n)"}, ":7: stores index "),
    "before": ({"load_a": "tl.load(a + offs - 1, mask=offs < n)"}, ":6: loads index -1 of a"),
    "wrong_bound": ({"load_a": "tl.load(a + offs, mask=offs < 2 * n)"}, ":6: loads index "),
    "neighbour": ({"load_a": "tl.load(a + offs + 1, mask=offs < n)"}, ":6: loads index "),
}

CAUSES = {"load": "is a mask missing, or an offset wrong?", "mask_by_one": "its mask is true there"}


def rows(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> dict[str, dict[str, str]]:
    given = ["compare", "--op", "vector_add", "--dtype", "fp32", "--device", "cpu", "--no-time", "--shape", "N=1000"]
    call(monkeypatch, *given, *words, "--out", str(folder / "out"))
    with (folder / "out" / "vector_add.csv").open(encoding="utf-8", newline="") as file:
        return {row["implementation"]: row for row in csv.DictReader(file)}


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(
    "names", [("load",), pytest.param(tuple(FAULTS), marks=pytest.mark.thorough)], ids=["some", "all"]
)
def test_a_missing_mask_is_named_with_kernel_program_line_and_index(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words, faults = ["--impl", "torch"], {name: FAULTS[name] for name in names}
    for name, (change, _) in {**faults, "right": ({}, "")}.items():
        path = tmp_path / f"{name}.py"
        path.write_text(FILE.format(**{**RIGHT, **change}))
        words += ["--with", str(path)]
    found = rows(monkeypatch, tmp_path, *words)
    assert found["with/right"]["status"] == "ok"
    for name, (_, said) in faults.items():
        row = found[f"with/{name}"]
        text = f"{row['reason']} {row['diagnosis']}"
        assert row["status"] in ("wrong", "error"), name
        assert "add: program (" in text, text
        assert f"{name}.py{said}" in text, text
        assert CAUSES.get(name, "") in text, text


def test_elements_and_masks_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "right.py"
    path.write_text(FILE.format(**RIGHT))
    row = rows(monkeypatch, tmp_path, "--inputs", "none", "--with", str(path), "--impl", "torch", "--count")[
        "with/right"
    ]
    assert (row["count_elements_loaded"], row["count_elements_stored"]) == ("2000", "1000")
    assert float(row["count_masked"]) == pytest.approx(24 / 1024, abs=1e-4)
    assert row["counted"] == "N=1000 float32"
