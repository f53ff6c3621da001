"""The Pallas sigmoid: lowered for Hopper, its errors, and every 16-bit number on such a GPU."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
np = pytest.importorskip("numpy")
pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 needs absl for it
jnp = jax.numpy
sigmoid_pallas = pytest.importorskip("jax_impls.sigmoid.pallas")

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
hopper = pytest.mark.skipif(
    getattr(jax.devices()[0], "compute_capability", None) != "9.0", reason="needs a Hopper GPU (compute capability 9.0)"
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sigmoid_lowers_for_hopper(dtype: str) -> None:
    x = jax.ShapeDtypeStruct((100, sigmoid_pallas.BLOCK), dtype)
    lowered = jax.jit(sigmoid_pallas._rows).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu") == 1


@pytest.mark.parametrize(
    ("dtype", "error", "message"),
    [
        ("int32", ValueError, "sigmoid: x must be float32, float16 or bfloat16; got int32"),
        ("float32", NotImplementedError, "sigmoid: this kernel takes float16 and bfloat16"),
    ],
)
def test_sigmoid_errors(dtype: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sigmoid_pallas.sigmoid(jnp.zeros(8, dtype))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only where JAX runs on a CPU")
def test_sigmoid_does_not_run_on_a_cpu() -> None:
    with pytest.raises(NotImplementedError, match="sigmoid: needs a Hopper GPU"):
        sigmoid_pallas.sigmoid(jnp.zeros(8, "bfloat16"))


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("start", [0, 1], ids=["whole rows", "one element less"])
def test_sigmoid_of_every_number_on_a_gpu(dtype: str, start: int) -> None:
    """Half a unit in the last place, plus the errors of 1 / sqrt and exp2; NaN for NaN."""
    numbers = jax.lax.bitcast_convert_type(jnp.arange(start, 1 << 16, dtype=jnp.uint16), jnp.dtype(dtype))
    x = np.asarray(numbers, np.float32).astype(np.float64)
    y = np.asarray(sigmoid_pallas.sigmoid(numbers), np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = 1 / (1 + np.exp(-x))
    normal = np.maximum(exact, float(jnp.finfo(dtype).smallest_normal))
    allowed = 0.51 * 2 * UNIT[dtype] * 2.0 ** np.floor(np.log2(normal))
    assert (np.isnan(y) == np.isnan(x)).all()
    assert (np.abs(y - exact) <= allowed)[~np.isnan(x)].all()
