"""The lines in Pallas: what they compute without a GPU, interpreted and watched for races; that they lower for Hopper,
within its shared memory; what they refuse; and on such a GPU the real thing.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
np = pytest.importorskip("numpy")
plgpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 wants absl for it
jnp = jax.numpy
matmul_pallas = pytest.importorskip("jax_impls.matmul_pallas")
sigmoid_pallas = pytest.importorskip("jax_impls.sigmoid_pallas")

ROOT = Path(__file__).resolve().parents[1]
SHARED_BYTES = 227 * 1024  # of a block, on Hopper
SCRATCH_BYTES = 2048  # what Mosaic keeps for itself, and the barriers
UNIT = {"float32": 2.0**-23, "float16": 2.0**-11, "bfloat16": 2.0**-8}
hopper = pytest.mark.skipif(
    getattr(jax.devices()[0], "compute_capability", None) != "9.0", reason="needs a Hopper GPU (compute capability 9.0)"
)

PLANS = {
    "one block": (
        matmul_pallas.Plan(columns=64, stages=3, cluster=(1, 1), band=2),
        [(129, 70, 65), (300, 130, 40), (1, 1, 1)],
    ),
    "two below each other": (matmul_pallas.Plan(columns=128, stages=2, cluster=(2, 1), band=3), [(520, 300, 200)]),
    "two side by side": (matmul_pallas.Plan(columns=256, stages=2, cluster=(1, 2), band=1), [(257, 1000, 100)]),
    "four": (matmul_pallas.Plan(columns=64, stages=2, cluster=(2, 2), band=8), [(700, 300, 130), (8, 24, 40)]),
}


def drawn(M: int, N: int, K: int, dtype: str) -> tuple[Any, Any]:
    source = np.random.default_rng(M + N + K)
    return tuple(jnp.asarray(source.standard_normal(shape), dtype) for shape in ((M, K), (K, N)))


def agrees(c: Any, a: Any, b: Any, unit_of_products: float = 2.0**-23) -> None:
    """Within one rounding of the result, and of each product and sum on the way."""
    a, b = (np.asarray(x).astype(np.float64) for x in (a, b))
    assert c.shape == (a.shape[0], b.shape[1])
    assert np.isfinite(np.asarray(c, np.float32)).all()
    allowed = UNIT[c.dtype.name] * np.abs(a @ b) + unit_of_products * np.sqrt(a.shape[1]) * (np.abs(a) @ np.abs(b))
    assert (np.abs(np.asarray(c).astype(np.float64) - a @ b) <= allowed).all()


def interpret(name: str, dtype: str) -> None:
    """Products by a plan, by so few blocks that each computes several tiles."""
    plan, shapes = PLANS[name]
    for M, N, K in shapes:
        a, b = drawn(M, N, K, dtype)
        with plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams(detect_races=True)):
            agrees(matmul_pallas._padded_product(a, b, plan, 4), a, b)


if __name__ == "__main__":
    interpret(*sys.argv[1:])
    sys.exit()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(plgpu, "InterpretGPUParams"), reason="JAX interprets Mosaic GPU from 0.11 on")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("plan", PLANS)
def test_matmul_interpreted(plan: str, dtype: str) -> None:
    """In a process of its own: warpgroups that wait hold threads of XLA's pool, which must be left some to compute."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "32", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, plan, dtype]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "RACE DETECTED" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("plan", matmul_pallas.PLANS, ids=str)
def test_matmul_lowers_for_a_gpu(plan: Any, dtype: str) -> None:
    a, b = jax.ShapeDtypeStruct((1000, 500), dtype), jax.ShapeDtypeStruct((500, 700), dtype)
    product = jax.jit(lambda a, b: matmul_pallas._padded_product(a, b, plan, 132))
    lowered = product.trace(a, b).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu") == 1
    rows = matmul_pallas.CONSUMERS * matmul_pallas.ROWS
    stages = plan.stages * (rows + plan.columns) * matmul_pallas.SWIZZLE
    element = jnp.dtype(dtype).itemsize
    assert stages + 2 * rows * min(plan.columns * element, matmul_pallas.SWIZZLE) + SCRATCH_BYTES <= SHARED_BYTES


@pytest.mark.parametrize("blocks", [132, 114, 78])
def test_matmul_plans_fill_the_device(blocks: int) -> None:
    for M, N in ((1, 1), (16, 14336), (1024, 1024), (2048, 2048), (4096, 4096), (16384, 16384), (10**6, 8)):
        plan = matmul_pallas._plan(M, N, blocks)
        tiles = {each: matmul_pallas._tiles(M, N, each) * math.prod(each.cluster) for each in matmul_pallas.PLANS}
        assert tiles[plan] >= min(max(tiles.values()), blocks // 3), (M, N, plan)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "a of one dimension": (
        lambda e, m: m(e(4), e(4, 5)),
        ValueError,
        "matmul: a must be (M, K); got (4,)",
    ),
    "other inner dimension": (
        lambda e, m: m(e(128, 64), e(32, 256)),
        ValueError,
        "matmul: a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)",
    ),
    "integers": (
        lambda e, m: m(e(4, 4, dtype="int32"), e(4, 4, dtype="int32")),
        ValueError,
        "matmul: a must be float32, float16 or bfloat16; got int32",
    ),
    "two dtypes": (
        lambda e, m: m(e(4, 4), e(4, 4, dtype="float16")),
        ValueError,
        "matmul: a is bfloat16, so b must be bfloat16; got float16",
    ),
    "unknown precision": (
        lambda e, m: m(e(4, 4), e(4, 4), precision="high"),
        ValueError,
        "matmul: precision must be 'ieee' or 'tf32' for bfloat16; got 'high'",
    ),
    "tf32 of 16 bits": (
        lambda e, m: m(e(4, 4), e(4, 4), precision="tf32"),
        ValueError,
        "matmul: precision 'tf32' is for float32 inputs; got bfloat16",
    ),
    "float32 products": (
        lambda e, m: m(e(4, 4, dtype="float32"), e(4, 4, dtype="float32")),
        NotImplementedError,
        "matmul: float32 with precision 'ieee' has no use for the tensor cores",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_matmul_refuses(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=re.escape(message)):
        call(lambda *shape, dtype="bfloat16": jnp.zeros(shape, dtype), matmul_pallas.matmul)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only where JAX runs on a CPU")
def test_matmul_runs_on_no_cpu() -> None:
    with pytest.raises(NotImplementedError, match="matmul: wgmma needs a Hopper GPU"):
        matmul_pallas.matmul(jnp.zeros((8, 8), "bfloat16"), jnp.zeros((8, 8), "bfloat16"))


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("M", "N", "K"),
    [(1, 1, 1), (0, 5, 3), (4, 5, 0), (129, 65, 33), (16, 4104, 72), (1000, 1001, 1003), (2056, 2312, 328)],
)
def test_matmul_on_a_gpu(M: int, N: int, K: int, dtype: str) -> None:
    a, b = drawn(M, N, K, dtype)
    tf32 = dtype == "float32"
    c = matmul_pallas.matmul(a, b, precision="tf32" if tf32 else "ieee")
    agrees(c, a, b, 2.0**-9 if tf32 else 2.0**-23)
    c = matmul_pallas.matmul(*(jnp.asarray(np.asarray(x).T).T for x in (a, b)), precision="tf32" if tf32 else "ieee")
    agrees(c, a, b, 2.0**-9 if tf32 else 2.0**-23)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sigmoid_lowers_for_a_gpu(dtype: str) -> None:
    x = jax.ShapeDtypeStruct((100, sigmoid_pallas.BLOCK), dtype)
    lowered = jax.jit(sigmoid_pallas._rows).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu") == 1


@pytest.mark.parametrize(
    ("dtype", "error", "message"),
    [
        ("int32", ValueError, "sigmoid: x must be float32, float16 or bfloat16; got int32"),
        ("float32", NotImplementedError, "sigmoid: float32 is left to XLA"),
    ],
)
def test_sigmoid_refuses(dtype: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sigmoid_pallas.sigmoid(jnp.zeros(8, dtype))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only where JAX runs on a CPU")
def test_sigmoid_runs_on_no_cpu() -> None:
    with pytest.raises(NotImplementedError, match="sigmoid: needs a Hopper GPU"):
        sigmoid_pallas.sigmoid(jnp.zeros(8, "bfloat16"))


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("start", [0, 1], ids=["whole rows", "one short of them"])
def test_sigmoid_of_every_number_on_a_gpu(dtype: str, start: int) -> None:
    """Half a unit of the result, and what 1 / sqrt and exp2 add; NaN where the input is one."""
    numbers = jax.lax.bitcast_convert_type(jnp.arange(start, 1 << 16, dtype=jnp.uint16), jnp.dtype(dtype))
    x = np.asarray(numbers, np.float32).astype(np.float64)
    y = np.asarray(sigmoid_pallas.sigmoid(numbers), np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = 1 / (1 + np.exp(-x))
    normal = np.maximum(exact, float(jnp.finfo(dtype).smallest_normal))
    allowed = 0.51 * 2 * UNIT[dtype] * 2.0 ** np.floor(np.log2(normal))
    assert (np.isnan(y) == np.isnan(x)).all()
    assert (np.abs(y - exact) <= allowed)[~np.isnan(x)].all()
