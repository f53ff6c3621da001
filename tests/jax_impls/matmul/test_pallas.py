"""The Pallas matmul: interpreted with race detection, lowered for Hopper within its shared memory, its errors, and its
results on such a GPU.

As a program, `test_pallas_matmul.py CONFIG DTYPE` interprets the products of one entry of INTERPRETED.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
np = pytest.importorskip("numpy")
plgpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 wants absl for it
jnp = jax.numpy
matmul_pallas = pytest.importorskip("jax_impls.matmul.pallas")
matmul_elements = pytest.importorskip("jax_impls.matmul.elements")
matmul_auto = pytest.importorskip("jax_impls.matmul.auto")
PRODUCTS = {"pallas": matmul_pallas, "elements": matmul_elements, "auto": matmul_auto}
configs = pytest.importorskip("jax_impls.matmul._configs")

ROOT = Path(__file__).resolve().parents[3]
SHARED_BYTES = 227 * 1024  # per block on Hopper
SCRATCH_BYTES = 2048  # Mosaic's own, and the barriers
UNIT = {"float32": 2.0**-23, "float16": 2.0**-11, "bfloat16": 2.0**-8}
hopper = pytest.mark.skipif(
    getattr(jax.devices()[0], "compute_capability", None) != "9.0", reason="needs a Hopper GPU (compute capability 9.0)"
)

INTERPRETED = {  # configuration, and the M, N, K that it is tested with
    "one block": (
        configs.TileConfig(block_n=64, num_stages=3, cluster=(1, 1), grid_tile_width=2),
        [(129, 70, 65), (300, 130, 40), (1, 1, 1)],
    ),
    "two blocks in a column": (
        configs.TileConfig(block_n=192, num_stages=2, cluster=(2, 1), grid_tile_width=3),
        [(520, 300, 200)],
    ),
    "two blocks in a row": (
        configs.TileConfig(block_n=256, num_stages=2, cluster=(1, 2), grid_tile_width=1),
        [(257, 1000, 100)],
    ),
    "four blocks": (
        configs.TileConfig(block_n=64, num_stages=2, cluster=(2, 2), grid_tile_width=8),
        [(700, 300, 130), (8, 24, 40)],
    ),
    "parts of K": (
        configs.TileConfig(block_n=128, num_stages=3, cluster=(1, 1), grid_tile_width=8, splits=3, consumers=1),
        [(130, 200, 450)],
    ),
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
    """Products by one configuration, with so few blocks that each computes several tiles."""
    config, shapes = INTERPRETED[name]
    for M, N, K in shapes:
        a, b = drawn(M, N, K, dtype)
        with plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams(detect_races=True)):
            agrees(matmul_pallas.padded_matmul(a, b, config, 4), a, b)


if __name__ == "__main__":
    interpret(*sys.argv[1:])
    sys.exit()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(plgpu, "InterpretGPUParams"), reason="JAX interprets Mosaic GPU from 0.11 on")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("config", INTERPRETED)
def test_matmul_interpreted(config: str, dtype: str) -> None:
    """In a process of its own with a large thread pool: waiting warpgroups hold threads of XLA's pool."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "32", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, config, dtype]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "RACE DETECTED" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("splits", [1, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "config",
    [*configs.CONFIGS[:4], *configs.CONFIGS[-3:]],
    ids=lambda config: f"{config.consumers * configs.WGMMA_M}x{config.block_n}",
)
def test_matmul_lowers_for_hopper(config: Any, splits: int, dtype: str) -> None:
    config = replace(config, splits=splits)
    a, b = jax.ShapeDtypeStruct((1000, 500), dtype), jax.ShapeDtypeStruct((500, 700), dtype)
    product = jax.jit(lambda a, b: matmul_pallas.padded_matmul(a, b, config, 132))
    lowered = product.trace(a, b).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu") == 1
    rows = config.consumers * configs.WGMMA_M
    stages = config.num_stages * (rows + config.block_n) * matmul_pallas.SWIZZLE
    buffers = 3 if config.block_n == 192 and dtype != "float32" else 2
    epilogue = buffers * rows * min(config.block_n * jnp.dtype(dtype).itemsize, matmul_pallas.SWIZZLE)
    assert stages + epilogue + SCRATCH_BYTES <= SHARED_BYTES


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_products_by_elements_lower_without_copies(dtype: str) -> None:
    a, b = jax.ShapeDtypeStruct((13, 301), dtype), jax.ShapeDtypeStruct((301, 17), dtype)
    product = jax.jit(lambda a, b: matmul_elements.matmul_by_elements(a, b, configs.ElementsConfig(16, 16, 128, 2)))
    lowered = product.trace(a, b).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call") == 1
    assert "stablehlo.pad" not in lowered


def test_small_products_are_by_elements_and_large_ones_by_tiles() -> None:
    for shape in ((8, 8, 8), (1000, 17, 33), (16, 2, 768), (4, 1000, 4096)):
        assert isinstance(configs.choose_config(*shape, 2, 132), configs.ElementsConfig), shape
    for shape, itemsize in product(((1024, 1024, 1024), (4096, 4096, 4096), (4095, 4097, 4099)), (2, 4)):
        assert isinstance(configs.choose_config(*shape, itemsize, 132), configs.TileConfig), shape


def chosen_tiles(M: int, N: int, K: int, blocks: int) -> Any:
    plans = configs.tiles_plans(M, N, K, 2, blocks)
    return min(plans, key=lambda config: configs.tiles_us(M, N, K, 2, config, blocks))


@pytest.mark.parametrize("blocks", [132, 114, 78])
def test_chosen_tiles_fill_the_device(blocks: int) -> None:
    for M, N in ((16, 14336), (64, 64), (1024, 1024), (2048, 2048), (4096, 4096), (16384, 16384), (10**6, 8)):
        config = chosen_tiles(M, N, 16384, blocks)
        used = configs.tile_count(M, N, config) * math.prod(config.cluster) * config.splits
        assert used >= blocks // 3, (M, N, config)


def test_k_is_divided_into_parts_with_steps_where_tiles_are_few() -> None:
    assert chosen_tiles(128, 256, 32768, 132).splits > 8
    assert chosen_tiles(4096, 4096, 4096, 132).splits == 1
    for K in (64, 1000, 4160):
        steps = -(-K // 64)
        for config in configs.tiles_plans(100, 300, K, 2, 132):
            assert (config.splits - 1) * -(-steps // config.splits) < steps


@settings(derandomize=True, database=None, deadline=None, max_examples=6)
@given(st.integers(1, 500), st.integers(1, 66))
def test_each_gpc_gets_consecutive_tiles(tiles: int, clusters: int) -> None:
    order = matmul_pallas.gpc_tile(jnp.arange(tiles), clusters, tiles).tolist()
    for first in range(0, tiles, clusters):
        wave = order[first : first + clusters]
        assert sorted(wave) == list(range(first, first + len(wave)))
        for gpc in range(min(matmul_pallas.GPCS, len(wave))):
            run = wave[gpc :: matmul_pallas.GPCS]
            assert run == list(range(run[0], run[0] + len(run)))


ERRORS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
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
        "matmul: a is bfloat16, so precision must be 'ieee'; got 'high'",
    ),
    "tf32 of 16 bits": (
        lambda e, m: m(e(4, 4), e(4, 4), precision="tf32"),
        ValueError,
        "matmul: a is bfloat16, so precision must be 'ieee'; got 'tf32'",
    ),
    "float32 products": (
        lambda e, m: m(e(4, 4, dtype="float32"), e(4, 4, dtype="float32")),
        NotImplementedError,
        "matmul: tensor cores cannot multiply float32 with precision 'ieee'",
    ),
}


@pytest.mark.parametrize("line", PRODUCTS)
@pytest.mark.parametrize("name", ERRORS)
def test_matmul_errors(name: str, line: str) -> None:
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=re.escape(message)):
        call(lambda *shape, dtype="bfloat16": jnp.zeros(shape, dtype), PRODUCTS[line].matmul)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only where JAX runs on a CPU")
@pytest.mark.parametrize("line", PRODUCTS)
def test_matmul_does_not_run_on_a_cpu(line: str) -> None:
    with pytest.raises(NotImplementedError, match="matmul: needs a Hopper GPU"):
        PRODUCTS[line].matmul(jnp.zeros((8, 8), "bfloat16"), jnp.zeros((8, 8), "bfloat16"))


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("M", "N", "K"),
    [
        (1, 1, 1),
        (0, 5, 3),
        (4, 5, 0),
        (129, 65, 33),
        (16, 4104, 72),
        (1000, 1001, 1003),
        (2056, 2312, 328),
        (120, 576, 8192),
    ],
)
@pytest.mark.parametrize("line", PRODUCTS)
def test_matmul_on_a_gpu(M: int, N: int, K: int, dtype: str, line: str) -> None:
    a, b = drawn(M, N, K, dtype)
    matmul = PRODUCTS[line].matmul
    tf32 = dtype == "float32"
    c = matmul(a, b, precision="tf32" if tf32 else "ieee")
    agrees(c, a, b, 2.0**-9 if tf32 else 2.0**-23)
    c = matmul(*(jnp.asarray(np.asarray(x).T).T for x in (a, b)), precision="tf32" if tf32 else "ieee")
    agrees(c, a, b, 2.0**-9 if tf32 else 2.0**-23)
