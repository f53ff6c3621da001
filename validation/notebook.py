"""Runs the code cells of a notebook in this process, without Jupyter, and keeps their output in it.

    python validation/notebook.py examples/compare.ipynb            # prints the outputs
    python validation/notebook.py examples/compare.ipynb --write    # puts them into the notebook

tests/validation/test_notebook.py runs the cells too. It compares the outputs of cells without the tag `measured`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Cell = dict[str, Any]


def code_cells(notebook: Cell) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(cells: list[Cell]) -> Iterator[list[Cell]]:
    """Yield the outputs of each cell as a notebook keeps them. The cells share their names, and run in a new folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for count, cell in enumerate(cells, 1):
            yield _outputs("".join(cell["source"]), names, count)


def _outputs(source: str, names: dict[str, Any], count: int) -> list[Cell]:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names) if last else None
    found: list[Cell] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        found.append({"data": _shown(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def _shown(value: Any) -> Cell:
    """Return the forms in which a notebook can show a value."""
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_") and (html := value._repr_html_()):
        data["text/html"] = html.splitlines(keepends=True)
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--write", action="store_true", help="put the outputs into the notebook")
    given = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    notebook = json.loads(given.path.read_text(encoding="utf-8"))
    cells = code_cells(notebook)
    for count, (cell, found) in enumerate(zip(cells, outputs(cells), strict=True), 1):
        cell |= {"execution_count": count, "outputs": found}
        for output in found:
            print("".join(output.get("text") or output["data"]["text/plain"]))
    if given.write:
        given.path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
