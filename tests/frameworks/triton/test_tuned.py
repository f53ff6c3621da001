"""The file of tuned configurations."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tuned_kernels import ENTRY, H200, tuned_folder  # noqa: F401 (a fixture)

from suite.core.errors import ResultsError
from suite.frameworks.triton import tuned
from suite.hardware import device_slug
from triton_kernels._runtime import tuned as _tuned

pytestmark = pytest.mark.usefixtures("tuned_folder")
HEAD = {"device": H200.name, "version": "3.6.0", "driver": "580.1"}


def test_entries_are_written_sorted_one_a_line_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "t.json"
    entries = [replace(ENTRY, key={"N": n, "MODE": None}) for n in (1024, 64, 512)]
    tuned.write(path, entries, **HEAD)
    assert [entry.key["N"] for entry in tuned.read(path, H200.name, "3.6.0")] == [64, 512, 1024]
    lines = path.read_text().splitlines()
    assert lines[1:4] == [' "device": "NVIDIA H200",', ' "triton": "3.6.0",', ' "driver": "580.1",']
    assert [json.loads(line.strip().rstrip(","))["key"]["N"] for line in lines if '"kernel"' in line] == [64, 512, 1024]
    assert tuned.read(tmp_path / "absent.json", H200.name, "3.6.0") == []


def test_a_new_entry_replaces_that_of_the_same_question_only(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(ENTRY, dtypes=("torch.float16",))
    tuned.add([ENTRY, other], H200.name, "1")
    tuned.add([replace(ENTRY, us=1.0)], H200.name, "2")
    assert {entry.dtypes: entry.us for entry in tuned.find(H200.name)} == {ENTRY.dtypes: 1.0, other.dtypes: 2.0}
    assert tuned.path_for(H200.name).relative_to(_tuned.FOLDER).as_posix() == "nvidia-h200/triton-3.6.0.json"
    assert tuned.find("NVIDIA L4") == [], "another device has another file"
    monkeypatch.setattr(_tuned, "version", lambda: "3.7.1")
    assert tuned.find(H200.name) == [], "so has another version"


def _document(**changes: Any) -> dict[str, Any]:
    return {"device": H200.name, "triton": "3.6.0", "driver": "1", "entries": [asdict(ENTRY)], **changes}


DAMAGED = {
    "empty": "",
    "not json": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another field": json.dumps(_document(date="today")),
    "entries no list": json.dumps(_document(entries={})),
    "entry no dict": json.dumps(_document(entries=[1])),
    "entry of other fields": json.dumps(_document(entries=[{**asdict(ENTRY), "speed": 1}])),
    "kernel no text": json.dumps(_document(entries=[{**asdict(ENTRY), "kernel": 1}])),
    "key nested": json.dumps(_document(entries=[{**asdict(ENTRY), "key": {"N": [1]}}])),
    "config a list": json.dumps(_document(entries=[{**asdict(ENTRY), "config": [1]}])),
    "dtypes a text": json.dumps(_document(entries=[{**asdict(ENTRY), "dtypes": "torch.float32"}])),
    "no time": json.dumps(_document(entries=[{**asdict(ENTRY), "us": None}])),
    "infinite time": json.dumps(_document(entries=[{**asdict(ENTRY), "us": float("inf")}])),
    "true candidates": json.dumps(_document(entries=[{**asdict(ENTRY), "candidates": True}])),
    "answered twice": json.dumps(_document(entries=[asdict(ENTRY), asdict(ENTRY)])),
    "another device": json.dumps(_document(device="NVIDIA L4")),
    "another version": json.dumps(_document(triton="3.5.0")),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"t\.json: .*remove it") as caught:
        tuned.read(path, H200.name, "3.6.0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["NVIDIA H200", "Intel(R) Xeon(R) 8481C @ 2.70GHz", "", "GB200 (TM)"])
def test_the_folder_is_called_as_the_results_of_the_device_are(name: str) -> None:
    assert _tuned.slug(name) == device_slug(name)
