"""The Pallas softmax: lowered for Hopper, and what it refuses."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 needs absl for it
jnp = jax.numpy
softmax_pallas = pytest.importorskip("jax_impls.softmax.pallas")


@pytest.mark.parametrize("columns", [1024, 8192])
def test_softmax_lowers_for_hopper(columns: int) -> None:
    x = jax.ShapeDtypeStruct((100, columns), "bfloat16")
    lowered = jax.jit(softmax_pallas._rows).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu") == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 1024), "float32", "softmax: this kernel takes float16 and bfloat16"),
        ((2, 1000), "bfloat16", "softmax: N must be a multiple of 1024 up to 8192; got 1000"),
        ((2, 9216), "float16", "softmax: N must be a multiple of 1024 up to 8192; got 9216"),
    ],
)
def test_what_it_refuses(shape: tuple[int, int], dtype: str, message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        softmax_pallas.softmax(jnp.zeros(shape, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("columns", [1024, 4096, 8192])
def test_softmax_agrees_on_a_gpu(columns: int, dtype: str) -> None:
    import torch
    from judging import RIGHT

    from suite import ops
    from suite.checking.judge import judge

    op = ops.get("softmax")
    for inputs in ("normal", "subnormal", "shifted"):
        case = op.case((300, columns), dtype, inputs=inputs)
        drawn = op.make_inputs(case, 1, torch.device("cuda"))
        out = torch.from_dlpack(softmax_pallas.softmax(*map(jax.dlpack.from_dlpack, drawn)))
        found = judge(out, op.truth(drawn, case), shape=case.shape, dtype=dtype)
        assert found.error_ratio < RIGHT, found.reason
