"""A file that defines an operation: its version, its text, and its run as a module.

It is the user's own code and runs with all rights, in a worker or in an external process.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from suite.core.errors import UsageError
from suite.core.file_version import digest_of
from suite.core.files import read_source
from suite.core.names import did_you_mean
from suite.custom import task_file
from suite.custom.dimensions import with_sizes
from suite.custom.on_cpu import compiled_for_device
from suite.problem.source import Kind, Source


def source_of(path: Path, kind: Kind) -> Source:
    """The present version of a file. Raises `UsageError` if it cannot be read, or is not Python."""
    path = Path(path).absolute()
    flag = f"--{kind} {path.name}"
    if kind == "gpumode":
        if missing := [name for name in (task_file.NAME, "reference.py") if not (path / name).is_file()]:
            raise UsageError(f"{flag}: must be a folder of GPU MODE's with {' and '.join(missing)} ({path})")
        path /= "reference.py"
    if path.suffix != ".py":
        raise UsageError(f"{flag}: must be a .py file")
    try:
        contents = read_source(path)
        ast.parse(contents)
    except FileNotFoundError:
        near = did_you_mean(path.name, [each.name for each in path.parent.glob("*.py")])
        raise UsageError(f"{flag}: there is no such file ({path}){near}") from None
    except SyntaxError as error:
        raise UsageError(f"{flag}: SyntaxError: {error.msg} ({path.name}:{error.lineno})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag}: cannot be read ({error})") from None
    if not path.stem.isidentifier() and kind == "reference":
        raise UsageError(f"{flag}: kernels define a function named like the file, and {path.stem!r} is no name; rename")
    return Source(str(path), kind, _version(path, kind, contents))


def _version(path: Path, kind: Kind, contents: bytes) -> str:
    """The version of the file and of the others that it uses."""
    found = digest_of(path, contents)
    if kind != "gpumode":
        return found
    task = (path.parent / task_file.NAME).read_bytes()
    used = [each.read_bytes() for each in task_file.modules(path.parent, task.decode("utf-8", "replace")).values()]
    return hashlib.sha256(b"\0".join([found.encode(), task, *used])).hexdigest()[: len(found)]


def parsed(source: Source) -> ast.Module:
    """The syntax tree of the file. Raises `UsageError` if it has changed since `source` was made."""
    path = Path(source.path)
    contents = read_source(path)
    if _version(path, source.kind, contents) != source.digest:
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
        exec(compiled_for_device(tree, str(path)), module.__dict__)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{path.name} needs the package {error.name}, which is not installed here (python -m pip install "
            f"{(error.name or '').partition('.')[0]})"
        ) from error
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return module
