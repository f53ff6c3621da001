"""Every `python -m suite ...` of the documents and of committed results is a command line that works.

Nothing is measured.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import call
from diff.rows import folder
from report.rows import RECORD, square
from thinning import chosen_by

import suite
from suite.core.paths import ROOT
from suite.implementations import builtin

SOURCES = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("examples/*.yml"))
PLACEHOLDERS = {"RUN...": "before", "RESULTS": "before", "BASE": "before", "NEW": "after", "NAME": "gelu"}
NOT_THERE = re.compile(r"--op gelu|/mine\b")
"""An operation and an implementation that a reader is to write."""
MEASURES = {("doctor", "--measure"), ("doctor", "--timer")}
KINDS = ("cluster", "compare", "diff", "doctor", "history", "list", "new-op", "report", "shapes", "tune")
"""Commands that are run here."""
FILES = (".py", ".cu", ".json", ".yaml", ".csv")


def documented() -> Iterator[tuple[str, ...]]:
    """The words of each command, without those of the shell."""
    for path in SOURCES:
        document = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for text in re.findall(r"(?:python -m suite|kernel-suite) ([a-z][^`#\n]*)", document):
            words = shlex.split(re.split(r"\s*(?:\)|>|\|\||&&)", text)[0])
            words = [word.replace("../results/", "").replace("$side", "new") for word in words]
            yield tuple(PLACEHOLDERS.get(word, word) for word in words)


NAMED_ONLY = {("compare",), ("report",), ("tune",)}
COMMANDS = sorted(
    {words for words in documented() if words[0] in KINDS and not NOT_THERE.search(" ".join(words))} - NAMED_ONLY
)


def published() -> Iterator[tuple[str, ...]]:
    """The words of each command in a record of committed results."""
    for path in ROOT.glob("results/**/environment.json"):
        if "runs" in path.relative_to(ROOT / "results").parts:
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        for each in (record, *record.get("earlier", {}).values()):
            for text in each.get("commands", [each.get("command", "")]):
                words = shlex.split(text.removeprefix("python -m suite "))
                beside = [path.parent / word for word in words]  # a list of cases
                yield tuple(str(file) if file.is_file() else word for word, file in zip(words, beside, strict=True))


PUBLISHED = sorted(set(published()))


def options(words: tuple[str, ...]) -> set[tuple[str, str]]:
    """The command with each of its options: `make test` has every one that occurs."""
    return {(words[0], word) for word in words if word.startswith("--")} or {(words[0], "")}


def few(commands: list[tuple[str, ...]]) -> list[object]:
    return chosen_by(commands, options, " ".join)


PROBLEM = """import torch
def generate_input(size, seed):
    return torch.randn(size)
def ref_kernel(data):
    return data.cumsum(0)
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documents speak of."""
    home = tmp_path_factory.mktemp("reader")
    for name in ("before", "after", "base", "new"):
        folder(home / name, square(512), RECORD)
    for words in COMMANDS:
        for option, name in pairwise(words):
            if option == "--with":
                (home / name).touch()
            if option == "--gpumode":
                (home / name).mkdir(parents=True)
                (home / name / "task.yml").write_text('tests:\n  - {"size": 64, "seed": 1}\n')
                (home / name / "reference.py").write_text(PROBLEM)
    (home / "shapes.csv").write_text("M,N,K\n64,64,64\n")
    (home / "examples").symlink_to(ROOT / "examples")
    (home / "config.json").symlink_to(ROOT / "examples" / "llama3_8b.json")
    for device in ("cpu-amd-epyc", "nvidia-h200"):
        for run in ("2026-11-21", "2026-11-22"):
            folder(home / "results" / device / "runs" / run, [*square(512), *square(4096)], RECORD)
        (home / "results" / device / "latest").symlink_to(Path("runs", "2026-11-22"))
    (home / "results" / "nvidia-h100-80gb-hbm3").symlink_to(ROOT / "results" / "nvidia-h100-80gb-hbm3")
    for path in (ROOT / "results" / "nvidia-h200").glob("*.*"):
        (home / "results" / "nvidia-h200" / path.name).symlink_to(path)
    return home


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, reader: Path) -> None:
    """Planning is real. Runs, searches, reports and skeletons are not."""
    import webbrowser

    from suite.cluster import dask_settings, hosts, local, remote
    from suite.hardware.device import Device
    from suite.new_op import skeletons
    from suite.profiling import once
    from suite.report import write
    from suite.runner import compare, tune

    none: Any = lambda *_, **__: []  # noqa: E731
    for module, name in (
        (compare, "compare"),
        (local, "compare"),
        (remote, "compare"),
        (tune, "tune"),
        (write, "write"),
        (skeletons, "write"),
        (once, "prepare"),
        (once, "call"),
    ):
        monkeypatch.setattr(module, name, none)
    h200 = Device("cuda", 0, "NVIDIA H200", (9, 0))
    found = hosts.Survey("tls://h1:8786", h200, None, {"device": {"name": h200.name}}, devices=8, hosts=1)
    monkeypatch.setattr(hosts, "survey", lambda *_: found)
    monkeypatch.setenv(dask_settings.FOLDER_VARIABLE, str(reader / "certificates"))
    monkeypatch.setattr(write, "write", lambda *_: [reader / "report.html"])
    monkeypatch.setattr(webbrowser, "open", none)
    monkeypatch.setattr("suite.hardware.environment_record", lambda *_: {"device": {"name": "D"}, "packages": {}})
    monkeypatch.setattr("suite.hardware.memory_bytes", lambda *_: None)
    monkeypatch.setattr("suite.hardware.device.Device.results_folder", Path("results", "cpu-amd-epyc"))
    monkeypatch.chdir(reader)


def into_new_folder(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The command, with a folder for its results that does not exist yet, as for a reader who follows the documents."""
    place = words.index("--out") if "--out" in words else len(words)
    named = [*words[place + 1 : place + 2], "out"][0]
    return (*words[:place], *words[place + 2 :], "--out", str(folder / named))


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("words", few(COMMANDS))
def test_a_documented_command_works(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if words[:2] in MEASURES:
        pytest.skip("measures the device")
    read = [word for option, word in pairwise(words) if option != "--out" and word.endswith(FILES)]
    if missing := [word for word in read if not Path(word).exists()]:
        pytest.skip(f"needs {' '.join(missing)}, which the document's reader writes")
    if words[0] == "compare" and "--publish" not in words:
        words = into_new_folder(words, tmp_path)
    status = call(monkeypatch, *words)
    said = capsys.readouterr().err
    if status and ("needs an NVIDIA GPU" in said or "processes that share its cores" in said):
        pytest.skip("needs an NVIDIA GPU")
    if "requires an argument" in said:
        pytest.skip("the name of an option, not a command line")
    assert status == 0, said


def test_the_documents_have_commands_of_every_kind() -> None:
    assert {words[0] for words in COMMANDS} == set(KINDS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the printed results are those of a CPU")
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_printed_reasons_of_the_causal_mask_are_true(name: str) -> None:
    """docs/running.md: NaN in a hidden key."""
    text = " ".join((ROOT / "docs" / "running.md").read_text(encoding="utf-8").split())
    (case,) = suite.cases("attention", inputs="nan", causal=True, dtypes="float32", device="cpu")
    assert f"attention {case.label} fp32 implementation" in text
    function = builtin.find("attention", name).function()
    found = suite.check(function, "attention", case, framework=name, device="cpu")
    assert f" {found.reason}" in text


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("words", few(PUBLISHED))
def test_the_command_of_a_published_table_still_works(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if ("--gpus", "all") in pairwise(words) and not torch.cuda.is_available():
        words = (*words, "--no-time")  # processes on one CPU are not timed
    if "--profile" in words and not torch.cuda.is_available():
        at = words.index("--profile")  # Nsight Compute needs a GPU
        words = words[:at] + words[at + 2 :]
    status = call(monkeypatch, *(words if "--publish" in words else into_new_folder(words, tmp_path)))
    assert status == 0, capsys.readouterr().err
