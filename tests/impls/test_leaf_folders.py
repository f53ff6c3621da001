"""Kernel folders depend on their framework alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {  # folder: packages that its files may import, beside the standard library and the folder itself
    "jax_impls": {"jax", "jaxtyping"},
    "numpy_impls": {"jaxtyping", "ml_dtypes", "numpy"},
    "torch_impls": {"jaxtyping", "torch"},
    "triton_kernels": {"jaxtyping", "torch", "triton"},
}

PEERS = {"liger": {"liger_kernel"}, "quack": {"quack"}, "helion": {"helion"}, "tokamax": {"tokamax", "absl"}}
"""What a file of a public kernel library, named after it, imports beside its folder's framework."""


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).glob("*.py"))]


def path_id(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", files(*FOLDERS), ids=path_id)
def test_a_folder_imports_its_framework_and_itself(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    peer: set[str] = PEERS.get(path.stem.rpartition("_")[2], set())
    assert imported - sys.stdlib_module_names <= FOLDERS[path.parent.name] | {path.parent.name} | peer


@pytest.mark.parametrize(
    "path",
    [path for path in files("jax_impls", "numpy_impls", "torch_impls") if not path.name.startswith("_")],
    ids=path_id,
)
def test_vendor_and_requires_are_literal_constants(path: Path) -> None:
    """They are read without importing the file."""
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("VENDOR", "PEER", "REQUIRES")
    }
    ours = path.parent.name == "numpy_impls" or path.stem.endswith("_pallas")
    assert (("VENDOR" in constants) != ("PEER" in constants)) != ours
    requires = (
        "cuda" if path.stem.endswith(("_cudnn", "_compile")) else "sm_90" if path.stem.endswith("_pallas") else None
    )
    assert "PEER" in constants or constants.get("REQUIRES") == requires
