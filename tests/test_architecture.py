"""The layout of the tree: imports go one way, kernel folders are leaves, files and functions are short."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import setup_script

from suite import frameworks, ops
from suite.core.paths import ROOT
from suite.implementations import builtin

ORDER = (
    "cli", "testing", "api", "new_op", "exercises", "doctor", "nightly", "cluster", "runner", "profiling", "ranks",
    "worker", "external", "processes", "history", "report", "diff", "results", "timing", "checking", "implementations",
    "frameworks", "variants", "models", "ops", "custom", "problem", "exact", "hardware", "numerics", "core",
)  # fmt: skip
"""Packages and modules of suite/ from top to bottom. Each imports only from itself and from those after it."""
MODULES = {"testing", "api"}
"""Those that are a single file."""
APART = {("doctor", "runner")}
"""Packages that do not import each other, whatever their order."""
AT_THE_TOP = {"__init__", "__main__"}
SHARED = {"autograd", "build", "common", "hopper", "host", "tuned"}
"""Names in kernel folders, without those that begin with an underscore, that are no operations."""
FOLDERS = tuple(frameworks.get(name).folder for name in frameworks.names())
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
LARGEST_RESULT = 200 * 1024
"""Bytes of a committed file below results/. Every clone has all of its versions, and a page with them loads at once."""
IGNORED_RESULTS = {"runs", "latest", "report.html"}
"""Names below results/<device>/ that git ignores."""


@dataclass(frozen=True)
class Source:
    """The parts of a Python file that the tests read. The syntax trees of all files would hold a million objects."""

    lines: int
    imports: tuple[tuple[str, int], ...]
    """(module, line) of every import: at the top, inside functions and for type checking alike."""
    functions: tuple[tuple[str, int, int], ...]
    """(name, line, length without the signature) of every function."""
    at_the_top: frozenset[str]
    """Names of the functions at the top."""


@cache
def read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, filename=str(path))
    found, functions = list[tuple[str, int]](), list[tuple[str, int, int]]()
    for node in setup_script.load().statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += imports_of(node, path)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
            functions.append((node.name, node.lineno, length))
    at_the_top = frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return Source(len(text.splitlines()), tuple(found), tuple(functions), at_the_top)


def imports_of(node: ast.Import | ast.ImportFrom, path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of an import statement."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno) for alias in node.names)
        return
    base = [node.module] if node.module else []
    if node.level:
        parts = path.relative_to(ROOT).with_suffix("").parts
        base = [*parts[: len(parts) - node.level], *base]
    yield from ((".".join([*base, alias.name]), node.lineno) for alias in node.names)


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def all_sources() -> list[Path]:
    """Every Python file of the tree, without virtual environments and caches."""
    found = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith((".", "build"))]
    return [*sorted(ROOT.glob("*.py")), *sources(*(str(each) for each in found if not (each / "pyvenv.cfg").exists()))]


def package(module: str) -> str | None:
    """`suite.results.row` -> `results`; None for what is not of suite, and for suite itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "suite" and len(parts) > 1 and parts[1] in ORDER else None


def edges() -> Iterator[tuple[str, str, str]]:
    """(importing package, imported package, file and line), of different packages of suite."""
    for path in sources("suite"):
        parts = path.relative_to(ROOT / "suite").parts
        own = parts[0].removesuffix(".py")
        for module, line in read(path).imports if own not in AT_THE_TOP else ():
            target = package(module)
            if target is not None and target != own:
                yield own, target, f"{path.relative_to(ROOT)}:{line} imports {module}"


def where(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {path.parent.name for path in (ROOT / "suite").glob("*/__init__.py")}
    assert packages == set(ORDER) - MODULES
    assert {path.stem for path in (ROOT / "suite").glob("*.py")} == AT_THE_TOP | MODULES


def test_imports_go_downwards() -> None:
    place = {name: position for position, name in enumerate(ORDER)}
    upwards = [text for upper, lower, text in edges() if place[lower] < place[upper]]
    assert not upwards, "\n".join(upwards)
    across = [text for upper, lower, text in edges() if (upper, lower) in APART or (lower, upper) in APART]
    assert not across, "\n".join(across)


def test_there_is_no_circle_among_modules() -> None:
    """Every import counts: at the top, inside functions and for type checking."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources("suite")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph = {name: _imported_modules(path, modules.keys()) - {name} for name, path in modules.items()}
    reached = {name: _reachable(name, graph) for name in graph}
    closing = [
        f"{name} imports {', '.join(back)}"
        for name, needed in graph.items()
        if (back := sorted(each for each in needed if name in reached[each]))
    ]
    assert not closing, "\n".join(closing)


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


def _imported_modules(path: Path, modules: Collection[str]) -> set[str]:
    """Modules of suite that a file imports: `from a.b import c` imports `a.b.c` if that is a module, else `a.b`."""
    names = {name for name, _ in read(path).imports}
    return {name if name in modules else name.rpartition(".")[0] for name in names}.intersection(modules)


def test_kernel_folders_import_nothing_from_suite() -> None:
    wrong = [
        f"{where(path)}:{line} imports {module}"
        for path in sources(*FOLDERS)
        for module, line in read(path).imports
        if module.split(".")[0] == "suite"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("framework", frameworks.names())
def test_a_kernel_folder_has_operations_and_what_they_share(framework: str) -> None:
    folder = ROOT / frameworks.get(framework).folder
    names = {path.stem for path in folder.iterdir() if path.name != "__pycache__" and not path.name.startswith("_")}
    assert names - SHARED <= set(ops.names())
    assert all(builtin.files(framework, name) for name in names - SHARED)


@pytest.mark.parametrize("framework", frameworks.names())
def test_every_file_of_an_operation_is_an_implementation_or_a_helper(framework: str) -> None:
    """An implementation defines or imports the operation's function. A helper's name begins with an underscore."""
    for name in ops.names():
        for path in builtin.files(framework, name).values():
            imported = {module.rpartition(".")[2] for module, _ in read(path).imports}
            assert name in read(path).at_the_top | imported, where(path)


def test_every_cuda_source_has_its_launcher() -> None:
    """`matmul/tiled.cu` has `matmul/tiled.py` beside it, `matmul/matmul.cu` the package. Helpers have any name."""
    folder = ROOT / frameworks.get("cuda").folder
    for source in folder.glob("*/*.cu"):
        launcher = source.with_name("__init__.py") if source.stem == source.parent.name else source.with_suffix(".py")
        assert launcher.is_file() or source.name.startswith("_"), where(source)
        beside = "".join(path.read_text(encoding="utf-8") for path in source.parent.glob("*.py"))
        named = str(source.relative_to(folder).with_suffix(""))
        assert f'"{named}"' in beside or f'"{source.stem}"' in beside or "fitted" in source.stem, where(source)


def test_no_file_is_long() -> None:
    lengths = {where(path): read(path).lines for path in all_sources()}
    long = [f"{name}: {length} lines" for name, length in lengths.items() if length > LONGEST_FILE]
    assert not long, "\n".join(long)


def test_no_function_is_long_but_kernels() -> None:
    long = [
        f"{where(path)}:{line} {name}: {length} lines"
        for path in all_sources()
        if path.relative_to(ROOT).parts[0] not in FOLDERS
        for name, line, length in read(path).functions
        if length > LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_no_file_of_results_is_large() -> None:
    """Measurements of many cases are committed as summaries, and marks of a plot share one style."""
    found = (path for path in (ROOT / "results").rglob("*") if path.is_file())
    sizes = {path: path.stat().st_size for path in found if IGNORED_RESULTS.isdisjoint(path.relative_to(ROOT).parts)}
    assert sizes
    large = [f"{where(path)}: {size} bytes" for path, size in sizes.items() if size > LARGEST_RESULT]
    assert not large, "\n".join(large)
