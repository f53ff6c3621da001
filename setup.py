"""Builds the wheel: the folders of the tree become one package, `kernel_suite`. The rest is in pyproject.toml.

In the wheel, `from suite.x import y` reads `from kernel_suite.suite.x import y`: no name but `kernel_suite` is taken in
the user's environment. An editable installation has the folders as they are in the tree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "kernel_suite"
NOT_PACKED = {PACKAGE, "validation"}
FOLDERS = tuple(sorted({each.parent.name for each in Path(__file__).parent.glob("*/__init__.py")} - NOT_PACKED))
"""`suite` and the folders of the frameworks."""


MENTIONED = re.compile(rf"\b(?:{'|'.join(FOLDERS)})\b")
"""Found in every source whose imports change. The others need not be parsed."""


def with_package(source: str) -> str:
    """`source` with PACKAGE before the names of FOLDERS in its imports. No line moves, so tracebacks stay right.

    Raises `ValueError` for `import suite...`, which would bind another name than before.
    """
    if not MENTIONED.search(source):
        return source
    lines = source.encode().split(b"\n")
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import) and any(each.name.split(".")[0] in FOLDERS for each in node.names):
            raise ValueError(f"line {node.lineno}: write `from {node.names[0].name.split('.')[0]} import ...`")
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in FOLDERS:
            line, begin = lines[node.lineno - 1], node.col_offset + len("from ")
            if not line[begin:].startswith(f"{node.module} import ".encode()):
                raise ValueError(f"line {node.lineno}: write `from {node.module} import ...` on one line")
            lines[node.lineno - 1] = line[:begin] + f"{PACKAGE}.".encode() + line[begin:]
    return b"\n".join(lines).decode()


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement of a file, also inside others. Expressions, which are most of a tree, hold none."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())


def main() -> None:
    from setuptools import find_packages, setup
    from setuptools.command.build_py import build_py

    class BuildPackage(build_py):
        """Copies the modules with their imports changed."""

        def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
            target, copied = super().build_module(module, module_file, package)
            try:
                text = with_package(Path(module_file).read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{module_file}: {error}") from error
            Path(target).write_text(text, encoding="utf-8")
            return target, copied

    packages = find_packages(include=[each for name in (*FOLDERS, PACKAGE) for each in (name, f"{name}.*")])
    if "editable_wheel" in sys.argv:
        setup(packages=packages)
        return
    setup(
        packages=[each if each == PACKAGE else f"{PACKAGE}.{each}" for each in packages],
        package_dir={PACKAGE: PACKAGE, **{f"{PACKAGE}.{name}": name for name in FOLDERS}},
        cmdclass={"build_py": BuildPackage},
    )


if __name__ == "__main__":
    main()
