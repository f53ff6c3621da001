"""Kernels from outside the tree: `compare --with FILE` adds them beside the built-in ones.

A file is read here without being run: a `.py` with `ast`, a `.cu` for its `extern "C"` launchers. What keeps it from
being used is found out as far as reading tells, and becomes the reason of its rows. Only a worker runs it: `guest.py`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite import frameworks
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.implementations.builtin import Implementation

PREFIX = "with/"
CONSTANTS = ("framework", "REQUIRES", "DETERMINISTIC", "VENDOR")


@dataclass(frozen=True)
class File:
    """A file that `--with` named, as far as it is known without running it."""

    path: Path
    framework: str = "torch"
    requires: str | None = None
    deterministic: bool = False
    digest: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Where the names that may be operations are bound."""
    shown: tuple[str, ...] = ()
    """What it defines itself, for those who look for something else."""
    fault: str = ""

    @property
    def name(self) -> str:
        return PREFIX + self.path.stem

    def implementation(self, operation: str) -> Implementation:
        """Its line of the table for one operation; with a fault, if it cannot be used for it."""
        fault = self.fault
        if not fault and operation not in self.lines:
            what = f'extern "C" int {operation}(...)' if self.path.suffix == ".cu" else f"function {operation}"
            fault = f"{self.path.name} has no {what}; it defines {', '.join(self.shown[:8]) or 'nothing'}"
        elif not fault and self.path.suffix == ".cu":
            fault = _signature_fault(self.path, operation, self.lines[operation])
        return Implementation(
            operation=operation,
            name=self.name,
            framework=self.framework,
            module="",
            vendor=None,
            requires=self.requires,
            deterministic=self.deterministic,
            path=self.path,
            digest=self.digest,
            line=self.lines.get(operation),
            fault=fault,
        )


def bring(paths: Sequence[Path], operations: Sequence[str]) -> dict[str, list[Implementation]]:
    """What the files add to each operation.

    A file joins the operations that it defines; one that defines none of them, or cannot be read, joins all, so that
    its rows say so. Raises `UsageError` for names that would not tell two lines apart.
    """
    files = [read(path) for path in paths]
    taken: dict[str, Path] = {}
    for given, file in zip(paths, files, strict=True):
        stem = file.path.stem
        if not stem.isprintable() or stem in ("", ".", ".."):
            raise UsageError(f"--with {str(given)!r}: its name, without the suffix, cannot be shown; rename it")
        if stem in taken:
            raise UsageError(f"--with {given}: {PREFIX}{stem} is {taken[stem]} already; rename one of the two")
        taken[stem] = given
    found: dict[str, list[Implementation]] = {operation: [] for operation in operations}
    for file in files:
        joins = [operation for operation in operations if operation in file.lines] or operations
        for operation in operations if file.fault else joins:
            found[operation].append(file.implementation(operation))
    return found


def read(path: Path) -> File:
    """What a file says of itself. Raises nothing: a fault is part of the answer."""
    given, path = path, Path(os.path.abspath(path))
    try:
        if path.is_dir():
            return File(path, fault=f"{path.name} is a folder; --with takes a .py or .cu file")
        if path.suffix not in (".py", ".cu"):
            return File(path, fault=f"{path.name} is neither a .py nor a .cu file")
        if path.exists() and not path.is_file():
            return File(path, fault=f"{path.name} is not a regular file")
        source = path.read_bytes()
    except (OSError, ValueError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        return File(path, fault=f"{given}: {why}")
    digest = digest_of(source)
    try:
        return _read_cuda(path, source, digest) if path.suffix == ".cu" else _read_python(path, source, digest)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message, line = str(error) or "too deeply nested", None
        if isinstance(error, SyntaxError):
            message, line = error.msg, error.lineno
        elif isinstance(error, UnicodeDecodeError):
            message, line = "not UTF-8", source[: error.start].count(b"\n") + 1
        where = f" ({path.name}:{line})" if line else f" ({path.name})"
        return File(path, digest=digest, fault=f"{type(error).__name__}: {message}{where}")


def digest_of(source: bytes) -> str:
    """What tells one version of a file from another; shown with its results."""
    return hashlib.sha256(source).hexdigest()[:12]


def _read_python(path: Path, source: bytes, digest: str) -> File:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    constants = {name: _literal(tree, name) for name in CONSTANTS}
    known = frameworks.names()
    requires, requires_line = constants["REQUIRES"]
    framework, framework_line = constants["framework"]
    fault = ""
    if framework_line is None:
        framework = "triton" if _imports(tree, "triton") else "torch"
    elif framework not in known:
        fault = f"framework must be one of {', '.join(map(repr, known))}, written out ({path.name}:{framework_line})"
    if requires_line is not None and not re.fullmatch(r"cuda|sm_\d{2,3}", str(requires)):
        fault = f"REQUIRES must be 'cuda' or such as 'sm_90', written out ({path.name}:{requires_line})"
    names, shown = _bound(tree)
    return File(
        path,
        framework="torch" if fault else framework,
        requires=None if fault else requires,
        deterministic=constants["DETERMINISTIC"][0] is True,
        digest=digest,
        lines=names,
        shown=shown,
        fault=fault,
    )


def _literal(tree: ast.Module, name: str) -> tuple[Any, int | None]:
    """The value of a module-level constant, None if it is not a literal, and its line, None if there is none."""
    found: tuple[Any, int | None] = (None, None)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets
        ):
            literal = node.value.value if isinstance(node.value, ast.Constant) else None
            found = (None if isinstance(node, ast.AugAssign) else literal, node.lineno)
    return found


def _imports(tree: ast.Module, package: str) -> bool:
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        if any(name.split(".")[0] == package for name in names):
            return True
    return False


def _bound(tree: ast.Module) -> tuple[dict[str, int], tuple[str, ...]]:
    """Names bound at module level, under an `if` or `try` too, with their lines; and those that are not imported."""
    lines: dict[str, int] = {}
    imported: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                lines[child.name] = child.lineno
            elif isinstance(child, ast.alias):
                name = child.asname or child.name.split(".")[0]
                lines[name] = child.lineno
                imported.add(name)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                lines[child.id] = child.lineno
            elif not isinstance(child, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                visit(child)

    visit(tree)
    own = (name for name in lines if name not in imported.union(CONSTANTS) and not name.startswith("_"))
    return lines, tuple(own)


def _read_cuda(path: Path, source: bytes, digest: str) -> File:
    from cuda_ref import _rewrite

    text = source.decode()
    lines = _rewrite.launchers(text)
    _rewrite.requirement(text)  # raises ValueError for one that is none
    return File(path, framework="cuda", digest=digest, lines=lines, shown=tuple(lines))


def _signature_fault(path: Path, operation: str, line: int) -> str:
    """What is wrong with a launcher's parameters: they have to be those of the suite's own."""
    from cuda_ref import _rewrite

    ours = ROOT / "cuda_ref" / f"{operation}.cu"
    if not ours.is_file():
        return f"{operation} has no .cu in cuda_ref, so that no launcher's signature is known; bring a .py"
    wanted = _rewrite.parameters(ours.read_text(encoding="utf-8"), operation)
    try:
        given = _rewrite.parameters(path.read_text(encoding="utf-8"), operation)
    except (LookupError, OSError, ValueError) as error:
        return f"{error} ({path.name}:{line})"
    if given == wanted:
        return ""
    return (
        f"{operation} takes ({', '.join(given)}), and must take ({', '.join(wanted)}) before stream and record: "
        f"see docs/own_kernels.md ({path.name}:{line})"
    )
