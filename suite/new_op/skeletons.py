"""Writes the files of a new operation from templates.

| template in `templates/<kind>/` | file |
|---|---|
| `operation.py.template` | `suite/ops/<name>.py` |
| `triton.py.template`, `cuda.py.template` | `<name>/__init__.py` in the framework's folder |
| `cuda.cu.template` | `cuda_ref/<name>/<name>.cu` |
| `jax.py.template` and others | `<name>.py` in the framework's folder |

`$name`, `$Name` and `$rank` in a template are the operation's name, its class and its rank.
"""

from __future__ import annotations

import ast
import ctypes
import keyword
import re
from contextlib import suppress
from pathlib import Path
from string import Template

from suite import frameworks, ops
from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.core.names import unknown
from suite.core.package import PREFIX
from suite.core.paths import ROOT

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".template"
OPERATION = "operation"
"""Name of the template of the file in `suite/ops/`."""
OWN_FOLDER = ("triton", "cuda")
"""Frameworks in which a new operation is a folder: its variants and helpers come beside its plain kernel."""
KINDS = tuple(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))
RANK_STEP = 10


def write(name: str, kind: str, root: Path = ROOT) -> list[Path]:
    """Write the skeletons of the operation `name` below `root`: all of them or, if one fails, none.

    Returns the files, relative to `root`. Raises `UsageError` for a name that exists and for a name or kind that cannot
    be used, `ResultsError` for a folder that cannot be written.
    """
    if PREFIX:
        raise UsageError("new-op: adds files to a checkout of the suite, and this is an installed package")
    files = render(name, kind)
    for module in dict.fromkeys(path.parent if path.parent.name == name else path.with_suffix("") for path in files):
        for path in (module.with_suffix(".py"), module):  # Python imports one of them: the other would be hidden
            if (root / path).exists():
                raise UsageError(f"new-op {name!r}: {path} exists already")
    try:
        for path, text in files.items():
            write_atomically(root / path, text)
    except BaseException:
        for path in files:
            with suppress(OSError):
                (root / path).unlink()
        for path in files:
            if path.parent.name == name:
                with suppress(OSError):
                    (root / path.parent).rmdir()
        raise
    return list(files)


def render(name: str, kind: str) -> dict[Path, str]:
    """The contents of the skeletons by path, relative to the root. Raises `UsageError` as `write` does."""
    if kind not in KINDS:
        raise UsageError(f"--kind: {unknown(kind, KINDS)}")
    check_name(name)
    rank = max((ops.rank(each) for each in ops.names() if ops.rank(each) < ops.UNRANKED), default=0) + RANK_STEP
    words = {"name": name, "Name": "".join(part.capitalize() for part in name.split("_")), "rank": str(rank)}
    texts = {_path(template, name): template.read_text(encoding="utf-8") for template in _templates(kind)}
    if name in set().union(*(_names(text) for path, text in texts.items() if path.suffix == ".py")):
        raise UsageError(f"new-op {name!r}: the skeletons use a variable or module of that name; choose another")
    return {path: Template(text).substitute(words) for path, text in texts.items()}


def check_name(name: str) -> None:
    """Raise `UsageError` unless `name` can name an operation: a Python function, a file, a C function."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"new-op {name!r}: not a usable name; lower case letters, digits and underscores, no Python keyword"
        )
    if name == "all":
        raise UsageError("new-op 'all': --op all means every operation")
    if name in ops.names():
        raise UsageError(f"new-op {name!r}: this operation exists")
    if hasattr(ctypes.CDLL(None), name):
        raise UsageError(
            f'new-op {name!r}: the C library has a function of that name, which extern "C" cannot declare again; '
            f"choose another, such as {name}_op"
        )


def _templates(kind: str) -> list[Path]:
    """The template of the operation, then those of the frameworks in their order."""
    order = [OPERATION, *frameworks.names()]
    return sorted(
        (TEMPLATES / kind).glob(f"*{SUFFIX}"), key=lambda path: (order.index(path.name.split(".")[0]), path.name)
    )


def _path(template: Path, name: str) -> Path:
    """The path of the file that a template becomes: `cuda.cu.template` -> `cuda_ref/<name>/<name>.cu`."""
    framework, suffix = template.name.removesuffix(SUFFIX).split(".")
    folder = "suite/ops" if framework == OPERATION else frameworks.get(framework).folder
    if framework in OWN_FOLDER:
        return Path(folder, name, "__init__.py" if suffix == "py" else f"{name}.{suffix}")
    return Path(folder, f"{name}.{suffix}")


def _names(text: str) -> set[str]:
    """Names that the code of a template binds or reads, without the operation's own name."""
    tree = ast.parse(Template(text).substitute(name="__name", Name="__Name", rank="0"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    return names
