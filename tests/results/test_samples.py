"""Raw samples in a file beside the table: they are typed, complete after a kill, and from this run alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suite.core.errors import ResultsError
from suite.results import journal, store
from suite.results.csv_file import read_rows
from suite.results.samples import SUFFIX, read_samples, to_npz
from suite.results.store import Results
from tests.results.rows import row

FILE = f"matmul{SUFFIX}"
TIMED = [row("torch", sample_us=(3.0, 1.5, 2.25)), row("triton", sample_us=(5.0,)), row("numpy")]


def kept(folder: Path) -> dict[str, tuple[float, ...]]:
    return {key[-1]: samples for key, samples in read_samples(folder / FILE).items()}


def test_a_reader_needs_numpy_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(to_npz(TIMED))
    with np.load(path) as file:
        names = np.repeat(file["implementation"], file["count"])
        assert list(file["device_us"][names == "torch"]) == [3.0, 1.5, 2.25]
        assert (file["device_us"].dtype, file["count"].dtype) == (np.float64, np.int64)
        assert set(file["case"]) == {TIMED[0].case}


def test_samples_are_written_with_their_rows_and_stay_when_a_run_is_resumed(tmp_path: Path) -> None:
    with Results(tmp_path, {}) as results:
        results.put("matmul", [replace(TIMED[0], sample_us=())])
        results.put("matmul", TIMED)
        assert [found.sample_us for found in read_rows(tmp_path / "matmul.csv")] == [each.sample_us for each in TIMED]
        assert not (tmp_path / FILE).exists()
    assert kept(tmp_path) == {"torch": (3.0, 1.5, 2.25), "triton": (5.0,)}
    with Results(tmp_path, {}, operations=["matmul"], resumed=True) as results:
        results.put("matmul", [row("jax", sample_us=(7.0,))])
    assert kept(tmp_path) == {"torch": (3.0, 1.5, 2.25), "triton": (5.0,), "jax": (7.0,)}


def test_no_table_has_a_time_whose_samples_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed after each of its writes in turn."""
    for writes in range(1, 7):
        folder, left = tmp_path / str(writes), [writes]

        def write(path: Path, text: str | bytes, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            path.write_bytes(text if isinstance(text, bytes) else text.encode())

        for module in (store, journal):
            monkeypatch.setattr(module, "write_atomically", write)
        with suppress(KeyboardInterrupt), Results(folder, {}) as results:
            results.put("matmul", TIMED)
        rows = read_rows(folder / "matmul.csv") if (folder / "matmul.csv").exists() else []
        in_table = {each.implementation: each.sample_us for each in rows if each.sample_us}
        assert not rows or {**kept(folder), **in_table} == {"torch": (3.0, 1.5, 2.25), "triton": (5.0,)}


def test_rows_and_samples_stay_in_the_table_where_a_file_of_samples_cannot_be_written(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / FILE / "a folder in the way").mkdir(parents=True)
    with Results(tmp_path, {}, on_problem=said.append) as results:
        results.put("matmul", TIMED)
        results.complete()
        assert [each.sample_us for each in read_rows(tmp_path / "matmul.csv")] == [each.sample_us for each in TIMED]
        assert FILE in said[0]
        (tmp_path / FILE / "a folder in the way").rmdir()
        (tmp_path / FILE).rmdir()
    assert kept(tmp_path).keys() == {"torch", "triton"}
    assert results.problem is None


def test_a_new_run_leaves_no_samples_of_an_earlier_one(tmp_path: Path) -> None:
    for rows, expected in ((TIMED, {"torch", "triton"}), ([row("jax")], set())):
        with Results(tmp_path, {}) as results:
            results.put("matmul", rows)
        assert kept(tmp_path).keys() == expected


def test_published_tables_have_no_samples_beside_them(tmp_path: Path) -> None:
    with Results(tmp_path, {}, keep_samples=False) as results:
        results.put("matmul", TIMED)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut", "whole"], ids=["empty", "cut", "counts"])
def test_a_damaged_file_is_named_and_a_resumed_run_goes_on_without_it(tmp_path: Path, damage: bytes | str) -> None:
    said: list[str] = []
    with Results(tmp_path, {}) as results:
        results.put("matmul", TIMED)
    if isinstance(damage, bytes):
        (tmp_path / FILE).write_bytes(damage)
    else:
        with np.load(tmp_path / FILE) as file:
            np.savez(tmp_path / FILE, **{**file, "count": file["count"] + 1})
    with pytest.raises(ResultsError, match="remove it to go on without them"):
        read_samples(tmp_path / FILE)
    with Results(tmp_path, {}, operations=["matmul"], resumed=True, on_problem=said.append) as results:
        assert len(results.kept) == 3
    assert "remove it" in said[0]
