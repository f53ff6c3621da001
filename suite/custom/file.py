"""A file that defines an operation: its version, its text, and its run as a module.

It is the user's own code and runs with all rights, in a worker or in an external process.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from suite.core.errors import UsageError
from suite.core.file_version import digest_of
from suite.core.files import read_source
from suite.custom.dimensions import with_sizes
from suite.problem.source import Kind, Source


def source_of(path: Path, kind: Kind) -> Source:
    """The present version of a file. Raises `UsageError` if it cannot be read, or is not Python."""
    path = Path(path).absolute()
    flag = f"--{kind} {path.name}"
    if path.suffix != ".py":
        raise UsageError(f"{flag}: must be a .py file")
    try:
        contents = read_source(path)
        ast.parse(contents)
    except FileNotFoundError:
        raise UsageError(f"{flag}: there is no such file ({path})") from None
    except SyntaxError as error:
        raise UsageError(f"{flag}: SyntaxError: {error.msg} ({path.name}:{error.lineno})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag}: cannot be read ({error})") from None
    if not path.stem.isidentifier() and kind == "reference":
        raise UsageError(f"{flag}: kernels define a function of the file's name, and {path.stem!r} is no name; rename")
    return Source(str(path), kind, digest_of(path, contents))


def parsed(source: Source) -> ast.Module:
    """The syntax tree of the file. Raises `UsageError` if it has changed since `source` was made."""
    path = Path(source.path)
    contents = read_source(path)
    if digest_of(path, contents) != source.digest:
        raise UsageError(f"{path.name}, or a file that it uses, changed while the run was going on")
    return ast.parse(contents, filename=str(path))


def run(source: Source, sizes: Mapping[str, int]) -> ModuleType:
    """Run the file as a module. `sizes` replaces the literals of its dimensions (`dimensions.py`)."""
    path = Path(source.path)
    tree = with_sizes(parsed(source), sizes)
    spec = importlib.util.spec_from_file_location(f"operation__{path.stem}", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: a file there must not shadow an installed package
    sys.modules[spec.name] = module
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return module
