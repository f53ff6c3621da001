"""Reads `task.yml` of GPU MODE's problems, whose lists have an item a line, and provides the modules that it names."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from suite.custom.on_cpu import compiled_for_device

NAME = "task.yml"
SCALARS = {"true": True, "false": False, "null": None}


def items(text: str, key: str) -> list[dict[str, Any]]:
    """The list of mappings under a key at the beginning of a line."""
    found: list[dict[str, Any]] = []
    inside = False
    for line in text.splitlines():
        plain = line.strip()
        if line[:1].strip() and not plain.startswith(("-", "#")):
            inside = plain.split("#")[0].strip() == f"{key}:"
        elif inside and plain and not plain.startswith("#"):
            if plain.startswith("-"):
                found.append({})
                plain = plain[1:].strip()
            if found:
                found[-1] |= _mapping(plain)
    return found


def is_for_several_gpus(text: str) -> bool:
    return re.search(r"^multi_gpu:\s*true\b", text, re.MULTILINE) is not None


def modules(folder: Path, text: str) -> dict[str, Path]:
    """The modules that the problem's files may import, by name."""
    sources = {Path(each["name"]).stem: each["source"] for each in items(text, "files") if "source" in each}
    own = {name: (folder / source).resolve() for name, source in sources.items()}
    return {name: path for name, path in own.items() if path.suffix == ".py" and path.is_file() and name != "reference"}


def provide_modules(folder: Path, text: str) -> None:
    """Let imports of these names find the problem's files."""
    sys.meta_path.insert(0, _Finder(modules(folder, text)))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._paths:
            return None
        place = str(self._paths[name])
        return importlib.util.spec_from_file_location(name, place, loader=_Loader(name, place))


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        return compiled_for_device(ast.parse(data, path), path)

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode into the folder."""

    def get_data(self, path: str) -> bytes:
        if path.endswith(".pyc"):
            raise OSError
        return super().get_data(path)


def _mapping(text: str) -> dict[str, Any]:
    """`{"size": 16, "seed": 1}  # comment`, or `size: 16`."""
    if text.startswith("{"):
        quoted = re.sub(r"([{,]\s*)([A-Za-z_]\w*)\s*:", r'\1"\2":', text.replace("'", '"'))
        quoted = re.sub(r"(:\s*)(True|False)\b", lambda match: match[1] + match[2].lower(), quoted)
        found: dict[str, Any] = json.JSONDecoder().raw_decode(quoted)[0]
        return found
    name, _, value = text.split(" #")[0].partition(":")
    plain = value.strip()
    try:
        return {name.strip(): SCALARS[plain] if plain in SCALARS else ast.literal_eval(plain)}
    except (ValueError, SyntaxError):
        return {name.strip(): plain}
