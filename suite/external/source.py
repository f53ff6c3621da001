"""Reads a user's file without running it: a `.py` with `ast`, a `.cu` for its `extern "C"` launchers.

A fault that reading shows becomes the reason of the file's rows.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite import frameworks
from suite.core.errors import UsageError
from suite.core.file_version import digest_of
from suite.core.files import NotReadableError, read_source
from suite.core.names import did_you_mean
from suite.core.paths import ROOT
from suite.core.text import one_line

PREFIX = "with/"
SUFFIXES = (".py", ".cu")
CONSTANTS = ("framework", "REQUIRES", "DETERMINISTIC", "VENDOR")


@dataclass(frozen=True)
class SourceFile:
    """The facts that the text of a file states."""

    path: Path
    framework: str = "torch"
    requires: str | None = None
    deterministic: bool = False
    vendor: str = ""
    """The library that it says it calls (`VENDOR`), or its own name; empty if others are not ranked against it."""
    digest: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Names that may be operations, each with the line that binds it."""
    shown: tuple[str, ...] = ()
    """Public names that the file defines itself, for the message about a missing operation."""
    fault: str = ""
    """Reason why the file cannot be used at all; empty if it can."""

    @property
    def name(self) -> str:
        """`with/mine`: the implementation's name in tables."""
        return PREFIX + self.path.stem

    def fault_for(self, operation: str, *, own: bool = False) -> str:
        """Reason why the file cannot be used for `operation`, the name that it must define; empty if it can.

        own: true for a user's operation, whose launcher is called by `own_launcher`.
        """
        if self.fault:
            return self.fault
        if operation == "ModelNew" and self.path.suffix == ".cu":
            return f"{self.path.name}: a problem of KernelBench takes a .py with the class ModelNew"
        if operation not in self.lines:
            kind = "class" if operation == "ModelNew" else "function"
            what = f'extern "C" int {operation}(...)' if self.path.suffix == ".cu" else f"{kind} {operation}"
            return f"{self.path.name} has no {what}; it defines {', '.join(self.shown[:8]) or 'nothing'}"
        if self.path.suffix == ".cu" and not own:
            return _signature_fault(self.path, operation, self.lines[operation])
        return ""


def refuse_unusable(paths: Iterable[Path]) -> None:
    """Raise `UsageError` for a path at which there is no `.py` or `.cu` file that can be read, and for files whose rows
    would have the same name or an unprintable one.

    A fault inside a file is no such case: it is the reason of the file's rows.
    """
    taken: dict[str, Path] = {}
    for path in paths:
        stem = Path(os.path.abspath(path)).stem
        if not stem.isprintable() or stem in ("", ".", ".."):
            raise UsageError(f"--with {str(path)!r}: its name, without the suffix, cannot be shown; rename it")
        if stem in taken:
            raise UsageError(f"--with {path}: {PREFIX}{stem} is {taken[stem]} already; rename one of the two")
        taken[stem] = path
    for path in paths:
        contents_of(path)


def contents_of(path: Path) -> bytes:
    """The contents of a user's file. Raises `UsageError` as `refuse_unusable` does."""
    try:
        if path.is_dir():
            raise UsageError(f"--with {path}: is a folder; give a .py or .cu file")
        if path.suffix not in SUFFIXES:
            raise UsageError(f"--with {path}: is neither a .py nor a .cu file")
        if path.exists() and not path.is_file():
            raise UsageError(f"--with {path}: is not a regular file")
        return read_source(path)
    except NotReadableError as error:
        raise UsageError(f"--with {path}: {error}") from None
    except FileNotFoundError:
        near = did_you_mean(path.name, _sources_beside(path))
        raise UsageError(f"--with {path}: there is no such file{near}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--with {path}: cannot be read ({error})") from None


def _sources_beside(path: Path) -> list[str]:
    with suppress(OSError):
        return [each.name for each in path.parent.iterdir() if each.suffix in SUFFIXES]
    return []


def read(path: Path) -> SourceFile:
    """Read a file. A fault inside it becomes its `fault`. Raises `UsageError` as `refuse_unusable` does."""
    source = contents_of(path)
    path = Path(os.path.abspath(path))
    digest = digest_of(path, source)
    try:
        return _read_cuda(path, source, digest) if path.suffix == ".cu" else _read_python(path, source, digest)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message, line = str(error) or "too deeply nested", None
        if isinstance(error, SyntaxError):
            message, line = error.msg, error.lineno
        elif isinstance(error, UnicodeDecodeError):
            message, line = "not UTF-8", source[: error.start].count(b"\n") + 1
        where = f" ({path.name}:{line})" if line else f" ({path.name})"
        return SourceFile(path, digest=digest, fault=f"{type(error).__name__}: {message}{where}")


def _read_python(path: Path, source: bytes, digest: str) -> SourceFile:
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
    vendor, vendor_line = constants["VENDOR"]
    if vendor_line is not None and not (vendor is True or (isinstance(vendor, str) and vendor)):
        fault = f"VENDOR must be True or the name of a library, written out ({path.name}:{vendor_line})"
    names, shown = _bound(tree)
    return SourceFile(
        path,
        framework="torch" if fault else framework,
        requires=None if fault else requires,
        deterministic=constants["DETERMINISTIC"][0] is True,
        vendor="" if fault or not vendor else path.name if vendor is True else one_line(vendor),
        digest=digest,
        lines=names,
        shown=shown,
        fault=fault,
    )


def _literal(tree: ast.Module, name: str) -> tuple[Any, int | None]:
    """The value of a module-level constant (None if it is no literal) and its line (None if there is no such name)."""
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
    """Names bound at module level, also under `if` or `try`, with their lines; and the public ones not imported."""
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


def _read_cuda(path: Path, source: bytes, digest: str) -> SourceFile:
    from cuda_ref.build import rewrite

    text = source.decode()
    lines = rewrite.launchers(text)
    rewrite.requirement(text)  # ValueError for an unknown architecture
    return SourceFile(path, framework="cuda", digest=digest, lines=lines, shown=tuple(lines))


def launcher(operation: str) -> str:
    """`extern "C" int matmul(...)`: the launcher that a .cu for the operation defines; empty if no .cu can have it."""
    from cuda_ref.build import rewrite

    ours = ROOT / "cuda_ref" / operation / f"{operation}.cu"
    return rewrite.declaration(ours.read_text(encoding="utf-8"), operation) if ours.is_file() else ""


def _signature_fault(path: Path, operation: str, line: int) -> str:
    """The difference between a launcher's parameters and the tree's; empty if there is none."""
    from cuda_ref.build import rewrite

    ours = launcher(operation)
    if not ours:
        return f"{operation} has no .cu in cuda_ref, so the signature of its launcher is unknown; write a .py"
    wanted = rewrite.parameters(ours, operation)
    try:
        given = rewrite.parameters(path.read_text(encoding="utf-8"), operation)
    except (LookupError, OSError, ValueError) as error:
        return f"{error} ({path.name}:{line})"
    if given == wanted:
        return ""
    return (
        f"{operation} takes ({', '.join(given)}), but must take ({', '.join(wanted)}) before stream and record: "
        f"see `list {operation}` ({path.name}:{line})"
    )
