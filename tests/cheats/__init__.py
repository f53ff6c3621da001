"""A gallery of cheats: kernels as a user brings them to `compare --with`, that game the check, the clock or other rows.

Each file in this folder is one cheat, each file in `twins/` an honest kernel that looks like one. Both say literally

    \"\"\"What it does, in one line.\"\"\"
    OPERATION = "matmul"
    GPU = False             # whether it can only run on a GPU
    SHAPE = "M=192,..."     # optional: the case; else that of SHAPES
    DTYPE, INPUTS, SOURCE   # optional: float32, normal, where the cheat was published

and a cheat also KIND, one of KINDS, and EXPECTED, the answers that are right (see README.md); a twin TWIN_OF. In a .cu
the same stands in comments before the first `#include`. The files are read here without being run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PLAINLY_WRONG = FOLDER / "neighbours" / "plainly_wrong.py"
HONEST = FOLDER / "neighbours" / "honest.py"
KINDS = {
    "remembers": "returns a result of an earlier call",
    "recognises": "computes where it is checked, and not where it is timed",
    "patches": "replaces what judges or measures it",
    "forges": "reports in the suite's place",
    "slows": "takes time from other rows",
    "destroys": "ends or ruins what other rows need",
    "late": "returns before its work is done, or works where no record is taken",
    "precision": "rounds more than the case allows, where it is timed",
    "narrow": "is right for the inputs that are tried first, and wrong for others",
    "memory": "reads or writes memory that is not its own",
}
STATUSES = ("wrong", "error", "timeout")
PHRASES = ("disturbs its neighbours", "undone", "no effect")
NEIGHBOURS = ("patches", "forges", "slows", "destroys")
"""Kinds that may change the rows of others."""
SHAPES = {
    "vector_add": "N=65536",
    "sigmoid": "N=65536",
    "matmul": "M=192,N=192,K=192",
    "top_k": "M=64,N=20000,K=8",
    "attention": "B=1,H=4,H_kv=2,S_q=100,S_k=100,D=64",
}
REQUIRED = {"OPERATION", "GPU"}
OPTIONAL = {"SHAPE", "DTYPE", "INPUTS", "SOURCE"}


@dataclass(frozen=True)
class Cheat:
    """One file of the gallery, as it describes itself."""

    path: Path
    about: str
    operation: str
    gpu: bool
    kind: str = ""
    """The kind of a cheat; empty for a twin."""
    expected: tuple[str, ...] = ()
    """The statuses and phrases with which a suite may answer a cheat."""
    twin_of: str = ""
    """The cheat that a twin looks like."""
    shape: str = ""
    dtype: str = "float32"
    inputs: str = "normal"
    source: str = ""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def row(self) -> str:
        """The name of its row."""
        return f"with/{self.name}"

    @property
    def in_whole_runs(self) -> bool:
        """True for a twin that `tests/runner/test_judged_timing.py` compares, with the others of its operation."""
        usual = not self.gpu and self.path.suffix == ".py" and self.shape == SHAPES[self.operation]
        return bool(self.twin_of) and usual and self.operation in ("matmul", "vector_add")

    @property
    def attacks_neighbours(self) -> bool:
        return self.kind in NEIGHBOURS

    @property
    def case(self) -> list[str]:
        """The options of `compare` that choose its case."""
        chosen = ["--op", self.operation, "--dtype", self.dtype, "--shape", self.shape]
        chosen += ["--precision", "ieee"] if self.operation == "matmul" else []
        return chosen + ([] if self.inputs == "normal" else ["--inputs", self.inputs])


def cheats() -> list[Cheat]:
    """Every cheat, by name."""
    return _read_all(FOLDER)


def twins() -> list[Cheat]:
    """Every honest twin, by name."""
    return _read_all(FOLDER / "twins")


def read(path: Path) -> Cheat:
    """Reads the description in a file. Raises ValueError where something is missing, unknown or not literal."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(_header(text) if path.suffix == ".cu" else text)
    about = ast.get_docstring(tree)
    found = dict(filter(None, map(_literal, tree.body)))
    wanted = REQUIRED | ({"TWIN_OF"} if path.parent.name == "twins" else {"KIND", "EXPECTED"})
    if about is None or "\n" in about:
        raise ValueError(f"{path.name}: its docstring must be one line that says what it does; got {about!r}")
    if missing := wanted - set(found):
        raise ValueError(f"{path.name}: {', '.join(sorted(missing))} must be given literally")
    given = {name.lower(): value for name, value in found.items() if name in wanted | OPTIONAL}
    given.setdefault("shape", SHAPES[given["operation"]])
    return Cheat(path=path, about=about, **given)


def _read_all(folder: Path) -> list[Cheat]:
    paths = [*folder.glob("[!_]*.py"), *folder.glob("[!_]*.cu")]
    return [read(path) for path in sorted(paths, key=lambda path: path.stem)]


def _header(text: str) -> str:
    """The comments at the beginning of a .cu, without their slashes."""
    lines = text.partition("#include")[0].splitlines()
    return "\n".join(line.removeprefix("//").removeprefix(" ") for line in lines)


def _literal(node: ast.stmt) -> tuple[str, Any] | None:
    """Name and value of a constant at module level; None for other statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return None
    try:
        return node.targets[0].id, ast.literal_eval(node.value)
    except ValueError:
        return None
