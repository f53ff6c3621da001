"""Kernel folders depend on their framework alone, and their implementations declare whose kernels they call."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from suite import ops
from suite.implementations import builtin
from suite.implementations.implementation import Implementation

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {  # folder: packages that its files may import, beside the standard library and the folder itself
    "jax_impls": {"jax", "jaxtyping"},
    "numpy_impls": {"jaxtyping", "ml_dtypes", "numpy"},
    "torch_impls": {"jaxtyping", "torch"},
    "triton_kernels": {"jaxtyping", "torch", "triton"},
    "cuda_ref": {"jaxtyping", "torch"},
}

PEERS = {"liger": {"liger_kernel"}, "quack": {"quack"}, "helion": {"helion"}, "tokamax": {"tokamax", "absl"}}
"""Imports of a file that is named after a public kernel library, beside its folder's framework."""


OWN_JAX = ("jax/pallas", "jax/elements", "jax/auto")
"""Lines of JAX whose kernels are ours: Pallas for Hopper, and the chooser among them."""
IMPLEMENTATIONS = [
    pytest.param(each, id=f"{name}-{each.name}")
    for name in ops.names()
    for each in builtin.implementations(name)
    if each.framework in ("jax", "torch", "numpy")
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_its_framework_and_itself(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert any(path.parent.parent.name == folder for path in paths)
    for path in paths:
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").split(".")[0])
        beyond = imported - sys.stdlib_module_names - {folder} - FOLDERS[folder] - PEERS.get(path.stem, set())
        assert not beyond, f"{path.relative_to(ROOT)} imports {', '.join(sorted(beyond))}"


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_vendors_kernels_and_their_device_are_declared(implementation: Implementation) -> None:
    ours = implementation.framework == "numpy" or implementation.name in OWN_JAX
    assert ((implementation.vendor is not None) != (implementation.peer is not None)) != ours
    variant = implementation.name.partition("/")[2]
    requires = "cuda" if variant in ("cudnn", "compile") else "sm_90" if implementation.name in OWN_JAX else None
    assert implementation.peer is not None or implementation.requires == requires
