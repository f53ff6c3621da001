"""Operations of users' files through the command line: what docs/own_operation.md shows is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import call
from custom_files import HEAD

from suite.core.paths import ROOT

DOCUMENT = (ROOT / "docs" / "own_operation.md").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the document, which is the current one."""
    for name, text in re.findall(r"`(\w+\.py)`[^`]*?```python\n(.*?)```", DOCUMENT, re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documented(option: str) -> tuple[list[str], dict[str, str]]:
    """The arguments of the document's command that begins so, and the status of each row of its output."""
    line, output = re.findall(rf"^\$ python -m suite (compare {option}.*)\n((?:.+\n)+)", DOCUMENT, re.MULTILINE)[0]
    rows = re.findall(r"^(torch|with/\w+) +\*? *(ok|wrong)\b", output, re.MULTILINE)
    return line.split(), dict(rows)


@pytest.mark.slow
@pytest.mark.thorough  # test_results.py compares such files
@pytest.mark.parametrize("option", ["--reference scaled_softmax", "--kernelbench gated"])
def test_the_documented_commands_say_what_the_page_says(
    option: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = documented(option)
    timed = option.startswith("--kernelbench")
    arguments = [each for each in arguments if not timed or each != "--no-time"]
    assert call(monkeypatch, *arguments, "--device", "cpu", "--json", "--quiet", "--out", str(files / "out")) == 1
    rows = {row["implementation"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    compiled = rows.pop("torch/compile")
    assert (compiled["status"], compiled["reason"]) == ("unsupported", "needs an NVIDIA GPU (cuda); this is a CPU")
    assert {name: row["status"] for name, row in rows.items()} == expected
    assert (rows["torch"]["device_us"] is not None) == timed
    versions = rows["torch"]["versions"]
    assert re.search(rf", {arguments[2]} sha256 [0-9a-f]{{12}}$", versions)
    if not timed:
        return
    capsys.readouterr()
    (files / "gated.py").write_text((files / "gated.py").read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert call(monkeypatch, *arguments, "--device", "cpu", "--quiet", "--out", str(files / "out"), "--resume") == 2
    assert "gated.py" in capsys.readouterr().err


def test_a_reference_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(HEAD + "shapes = ['N=4']\ndef reference(x: Float[Tensor, 'N']):\n    return x @ x[:2]\n")
    assert call(monkeypatch, "compare", "--reference", path, "--device", "cpu", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert re.search(r"^error: --reference \S*broken\.py: RuntimeError: .* \(broken\.py:7\)$", error)
    assert not (tmp_path / "out").exists()


def test_shapes_of_a_model_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = tmp_path / "shapes.json"
    assert call(monkeypatch, "shapes", ROOT / "examples" / "llama3_8b.json", "--out", shapes) == 0
    capsys.readouterr()
    arguments = ["--reference", "r.py", "--shapes-from", shapes, "--device", "cpu", "--out", tmp_path / "out"]
    assert call(monkeypatch, "compare", *arguments) == 2
    assert "the shapes of a model belong to the suite's operations, and --reference defines" in capsys.readouterr().err


SEVERAL = {
    "several.py": """
import torch

dtypes = "float32"
mutates = ["out"]


def inputs(case):
    return [{"x": torch.randn(16), "i": torch.randint(0, 9, (16,))}, torch.empty(16)]


def reference(d, out):
    out[...] = d["x"] * 2
    return d["x"] > 0, d["i"] + 1
""",
    "by_torch.py": "def several(d, out):\n    out.copy_(d['x'] + d['x'])\n    return [d['x'] > 0, d['i'] + 1]\n",
    "by_jax.py": "framework = 'jax'\ndef several(d, out):\n    return d['x'] > 0, d['i'] + 1, d['x'] * 2\n",
    "off.py": "def several(d, out):\n    return d['x'] > 0, d['i'] + (d['i'] > 7), d['x'] * 2\n",
}


@pytest.mark.slow(seconds=25)
@pytest.mark.thorough
def test_several_results_of_nested_inputs_come_from_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in SEVERAL.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    kernels = [each for name in list(SEVERAL)[1:] for each in ("--with", tmp_path / name)]
    arguments = ["--reference", tmp_path / "several.py", *kernels, "--device", "cpu", "--no-time", "--json", "--quiet"]
    assert call(monkeypatch, "compare", *arguments, "--out", tmp_path / "out") == 1
    rows = {row["implementation"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    found = {name: rows[name]["status"] for name in ("torch", "with/by_torch", "with/by_jax", "with/off")}
    assert found == {"torch": "ok", "with/by_torch": "ok", "with/by_jax": "ok", "with/off": "wrong"}
    assert "value: at result 1[" in rows["with/off"]["reason"]


def test_what_an_ok_does_not_say_is_told_and_strict_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shifted.py"
    path.write_text(
        HEAD + "shapes = ['N=40']\ndtypes = 'float32'\ntolerance = 3.0\n"
        "def reference(x: Float[Tensor, 'N'], y: Float[Tensor, 'N']):\n    return x * 1.5\n"
    )
    arguments = ["--reference", path, "--device", "cpu", "--no-time", "--json", "--out", tmp_path / "out"]
    assert call(monkeypatch, "compare", *arguments, "--strict") == 1
    output = capsys.readouterr()
    assert "shifted: the result does not depend on the input y: an ok says nothing about it" in output.err
    row, compiled = json.loads(output.out)["rows"]
    assert (row["status"], row["weak_bound"]) == ("ok", 1.0)
    assert row["weakness"].startswith("the result does not depend on the input y; weak bound: 100% of the elements ")
    assert row["weakness"].endswith("zeros would pass")
    assert (compiled["status"], compiled["weakness"]) == ("unsupported", "")
    assert call(monkeypatch, "compare", *arguments, "--resume") == 0
