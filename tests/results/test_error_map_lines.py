"""The map of a wrong row under its table, its image, and the note that has the diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.report.maps import write_maps
from suite.report.plots.error_maps import error_map
from suite.results.render import View, case_lines, markdown
from suite.results.row import Row, Status

TILES = "16x8 " + "/".join(["." * 32] * 8 + ["." * 16 + "#" * 16] * 8 + ["." * 32] * 8)
DIAGNOSIS = "as if the last 16 of K were left out (fits 100%)"


def wrong(name: str = "triton", **values: Any) -> Row:
    given = {"status": Status.WRONG, "reason": "value: at [0, 0] got 1", "diagnosis": DIAGNOSIS, "error_map": TILES}
    return Row("matmul", "M=384,N=256,K=64", "float32", "ieee", name, **{**given, **values})


def shown(*rows: Row, width: int = 120, **view: Any) -> list[str]:
    return [str(line) for line in case_lines(rows, width, View(**view))]


def test_the_first_wrong_row_has_its_map_and_the_note_its_diagnosis() -> None:
    lines = shown(wrong("torch", error_map="16x8 ##/##"), wrong(), wrong("jax"))
    assert f" 1  value: at [0, 0] got 1; {DIAGNOSIS}" in lines
    at = lines.index("triton: wrong elements in tiles of 48 x 8; . none, 1 to 9 tenths of them, # all")
    assert lines[at + 1 :] == [
        f"{place:>7}  {tiles}"
        for place, tiles in zip(
            range(0, 384, 48),
            ["." * 32, "." * 32, "." * 16 + "4" * 16, *["." * 16 + "#" * 16] * 2, "." * 16 + "4" * 16, *["." * 32] * 2],
            strict=True,
        )
    ]


def test_wide_shows_every_map() -> None:
    lines = shown(wrong("torch", error_map="16x8 ##/##"), wrong(), wide=True)
    assert [line.split(":")[0] for line in lines if "wrong elements in tiles" in line] == ["torch", "triton"]


def test_right_rows_and_damaged_maps_have_none() -> None:
    assert not [line for line in shown(wrong(error_map=""), wrong("jax", error_map="x")) if "tiles" in line]
    assert error_map(wrong(status=Status.OK)) is None


def test_markdown_has_the_diagnosis() -> None:
    assert "as if the last 16 of K were left out" in markdown([wrong()], {})


def test_images_are_replaced_by_those_of_the_next_run(tmp_path: Path) -> None:
    (path,) = write_maps(tmp_path, [wrong("with/mine"), wrong(status=Status.OK)])
    assert path.name == "matmul-M=384-N=256-K=64-float32-ieee-with-mine.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert write_maps(tmp_path, [wrong(status=Status.OK)]) == []
    assert not path.exists()


def test_the_image_says_what_the_map_says() -> None:
    plot = error_map(wrong())
    assert plot is not None
    assert (len(plot.data["shares"]), plot.data["tile"]) == (24, [16, 8])
    assert DIAGNOSIS in plot.about
