"""The documents: links and paths resolve, lines fit, and the commands that they name exist."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from commands import call

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", "examples", "validation") for path in (ROOT / folder).rglob("*.md")),
    ]
)
LONGEST_LINE, LONGEST_README = 120, 150
GENERATED = "<!-- table:begin -->", "<!-- table:end -->"
"""Around the README's table, which a measurement made."""
TOPS = (
    "suite",
    "triton_kernels",
    "jax_impls",
    "cuda_ref",
    "torch_impls",
    "numpy_impls",
    "tests",
    "validation",
    "docs",
    "examples",
)
PATH = re.compile(rf"(?:{'|'.join(TOPS)})/[\w./*<>-]*[\w*>]\.(?:py|cuh?|md|h|yml)\b")
PLACEHOLDER = re.compile(r"NAME|[*<>]|/mine\.(?:py|cu)$")

GROUPS = ("cluster",)
"""Commands that have subcommands."""

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines that are neither code, nor a row of a table, nor generated."""
    in_code = generated = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif line in GENERATED:
            generated = line == GENERATED[0]
        elif not (in_code or generated or line.lstrip().startswith("|")):
            yield number, line


def commands(path: Path) -> list[tuple[str, list[str]]]:
    """(subcommand, options) of every `python -m suite ...` in a document."""
    found = []
    for line in re.findall(r"python -m suite ([^`#\n]*)", path.read_text(encoding="utf-8")):
        name, *words = line.split()
        if re.fullmatch(r"[a-z][a-z-]*", name):
            if name in GROUPS:
                name = f"{name} {words.pop(0)}"
            found.append((name, [word.partition("=")[0] for word in words if word.startswith("--")]))
    return found


@cache
def help_of(command: str) -> str:
    """The output of `python -m suite COMMAND --help`."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
            patch.setenv(name, value)
        assert call(patch, *command.split(), "--help") == 0, f"python -m suite {command}"
    return out.getvalue()


@each_document
def test_links_resolve(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    local = [target.partition("#")[0] for target in targets if not re.match(r"https?:|#", target)]
    missing = [target for target in local if not (path.parent / target).exists()]
    assert not missing


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub names them."""
    headings = [line.lstrip("#").strip() for _, line in prose(path) if re.match(r"#{1,6} ", line)]
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown)


@each_document
def test_anchors_resolve(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    targets = [((path.parent / name).resolve() if name else path, anchor) for name, anchor in links]
    missing = [anchor for target, anchor in targets if target.suffix == ".md" and anchor not in anchors(target)]
    assert not missing


@each_document
def test_paths_exist(path: Path) -> None:
    found = set(PATH.findall(path.read_text(encoding="utf-8")))
    missing = sorted(name for name in found if not PLACEHOLDER.search(name) and not (ROOT / name).exists())
    assert not missing


@each_document
def test_lines_fit(path: Path) -> None:
    shown = {number: re.sub(r"\]\([^)]*\)", "]", line) for number, line in prose(path)}  # without the targets of links
    long = [number for number, line in shown.items() if len(line) > LONGEST_LINE]
    assert not long, f"lines {long} have more than {LONGEST_LINE} columns"


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, *ROOT.glob("examples/*.yml")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_commands_exist(path: Path) -> None:
    unknown = []
    for name, options in commands(path):
        known = set(re.findall(r"(?<![\w-])--[a-z-]+", help_of(name)))
        unknown += [f"{name} {option}" for option in options if option not in known]
    assert not unknown


@each_document
def test_options_of_the_validation_programs_exist(path: Path) -> None:
    unknown = []
    for name, words in re.findall(r"python (validation/\w+\.py)([^`#\n]*)", path.read_text(encoding="utf-8")):
        source = (ROOT / name).read_text(encoding="utf-8")
        unknown += [f"{name} {word}" for word in words.split() if word.startswith("--") and f'"{word}"' not in source]
    assert not unknown


@each_document
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert not {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)}


@each_document
def test_lines_of_code_stand_in_the_file_beside_them(path: Path) -> None:
    """`[file](path): ` with a line of code in backquotes after it."""
    text = " ".join(path.read_text(encoding="utf-8").split())
    quoted = re.findall(r"\]\(([\w./]+\.(?:cuh?|py|h))\): `([^`]+)`", text)
    files = {name: " ".join((path.parent / name).read_text(encoding="utf-8").split()) for name, _ in quoted}
    missing = [f"{name}: {line}" for name, line in quoted if line not in files[name]]
    assert not missing, "\n".join(missing)
    assert quoted or path.parent.name != "cuda"


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < LONGEST_README
    first_screen = "\n".join(lines[:25])
    assert "make compare" in first_screen
    assert "make test" in first_screen


def test_the_table_of_validation_programs_names_every_program() -> None:
    table = (ROOT / "validation" / "README.md").read_text(encoding="utf-8")
    programs = [path.name for path in (ROOT / "validation").glob("*.py") if "ArgumentParser(" in path.read_text()]
    assert not [name for name in programs if f"| `{name}` |" not in table]


def test_the_lab_index_names_every_page() -> None:
    lab = ROOT / "docs" / "lab"
    index = (lab / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in lab.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index]
