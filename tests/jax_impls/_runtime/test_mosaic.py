"""The name of a Mosaic kernel's dumps, which is part of the key of JAX's compilation cache."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 needs absl for it
_mosaic = pytest.importorskip("jax_impls._runtime.mosaic")
sigmoid_pallas = pytest.importorskip("jax_impls.sigmoid.pallas")


@pytest.mark.parametrize(
    ("given", "name"), [({}, "kernel"), ({_mosaic.NAME: "kernel_7"}, "kernel_7")], ids=["none yet", "one already"]
)
def test_name_of_dumps(given: dict[str, str], name: str) -> None:
    module = SimpleNamespace(operation=SimpleNamespace(attributes={"sym_name": "kernel", **given}))
    assert _mosaic.without_count(lambda module: module.operation.attributes[_mosaic.NAME])(module) == name


def test_a_kernel_is_lowered_alike_after_another() -> None:
    def lowered(rows: int) -> str:
        x = jax.ShapeDtypeStruct((rows, sigmoid_pallas.BLOCK), "bfloat16")
        return str(jax.jit(sigmoid_pallas._rows).trace(x).lower(lowering_platforms=("cuda",)).as_text())

    first = lowered(100)
    lowered(200)
    jax.clear_caches()
    assert lowered(100) == first
