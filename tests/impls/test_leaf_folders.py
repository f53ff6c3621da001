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

COPIES = {  # file below _runtime/: folders that have it; the first one has the source
    "contract.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "operands.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "losses.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "products.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "caches.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "experts.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"),
    "shares.py": ("cuda_ref", "triton_kernels", "jax_impls", "torch_impls"),
    "kept.py": ("cuda_ref", "triton_kernels"),
    "operator.py": ("cuda_ref", "triton_kernels"),
    "layers.py": ("cuda_ref", "triton_kernels"),
    "symmetric.py": ("cuda_ref", "triton_kernels"),
    "autograd.py": ("cuda_ref", "triton_kernels"),
}
OWN_JAX = ("jax/pallas", "jax/elements", "jax/auto")
"""Lines of JAX whose kernels are ours: Pallas for Hopper, and the chooser among them."""
KERNELS_OF_JAX = ("all_gather_matmul",)
"""Operations whose `jax/pallas` is a kernel that JAX brings."""
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


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_equal_to_their_source(name: str) -> None:
    source, *copies = (Path(folder, "_runtime", name) for folder in COPIES[name])
    for copy in copies:
        assert (ROOT / copy).read_bytes() == (ROOT / source).read_bytes(), (
            f"{source} is the source of {copy}: edit the source, then run: cp {source} {copy}"
        )
    assert f"Edit {source} and copy it" in " ".join((ROOT / source).read_text(encoding="utf-8").split())


def test_copies_are_declared() -> None:
    """Files of equal text in the `_runtime/` of several folders are those of COPIES."""
    found: dict[tuple[str, bytes], list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder / "_runtime").glob("*.py")):
            if path.name != "__init__.py":
                found.setdefault((path.name, path.read_bytes()), []).append(folder)
    equal = {name: set(folders) for (name, _), folders in found.items() if len(folders) > 1}
    assert equal == {name: set(folders) for name, folders in COPIES.items()}


@pytest.mark.parametrize(
    "name", ["contract.py", "operands.py", "losses.py", "products.py", "caches.py", "experts.py", "shares.py"]
)
def test_the_contract_needs_the_standard_library_and_its_folder_alone(name: str) -> None:
    for node in ast.walk(ast.parse((ROOT / "cuda_ref/_runtime" / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            package = (node.module or "").split(".")[0]
            own = ("arguments", "operands", "products")
            assert package in (own if node.level else sys.stdlib_module_names)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_vendors_kernels_and_their_device_are_declared(implementation: Implementation) -> None:
    own_jax = implementation.name in OWN_JAX and implementation.operation not in KERNELS_OF_JAX
    ours = implementation.framework == "numpy" or own_jax
    assert ((implementation.vendor is not None) != (implementation.peer is not None)) != ours
    variant = implementation.name.partition("/")[2]
    on_gpus = variant in ("cudnn", "compile", "flex") or variant.startswith("symm_")
    requires = "cuda" if on_gpus else "sm_90" if implementation.name in (*OWN_JAX, "torch/scaled_mm") else None
    assert implementation.peer is not None or implementation.requires == requires
