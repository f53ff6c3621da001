"""All ranks' rows times this rank's weight by JAX's Pallas kernel for Hopper, which sends tiles as it multiplies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls.matmul._limits import check_products

VENDOR = "JAX (Pallas)"
REQUIRES = "sm_90"
TILE_M, TILE_N, TILE_K = 128, 128, 64
"""Rows and columns of a warpgroup, and a step of K. Two warpgroups share the rows of a block."""


def all_gather_matmul(
    x: Float[Array, "M K"], w: Float[Array, "K N"], *, group: str, precision: str = "ieee"
) -> Float[Array, "ranks*M N"]:
    """X w, where X has the rows of x along the mesh axis `group`. Call this inside shard_map.

    The kernel multiplies a tile of x in shared memory and stores the tile to the memory of the rank before, by a remote
    reference; semaphores tell when a rank's rows are whole. float16 or bfloat16.
    Raises ValueError for other shapes and dtypes; NotImplementedError for float32, for M, N or K that are not multiples
    of 128, 256 and 64, and on anything but a Hopper GPU.
    Source: jax.experimental.pallas.ops.gpu.collective_matmul_mgpu.
    """
    check_products(x, w, precision)
    (M, K), N = x.shape, w.shape[1]
    if x.dtype == jnp.float32:
        raise NotImplementedError(f"all_gather_matmul: JAX's kernel takes float16 and bfloat16; got {x.dtype}")
    if M * N * K == 0 or M % TILE_M or N % (2 * TILE_N) or K % TILE_K:
        raise NotImplementedError(f"all_gather_matmul: JAX's kernel takes only whole tiles; got M={M}, N={N}, K={K}")
    from jax.experimental.pallas.ops.gpu import collective_matmul_mgpu as pallas

    tiles = pallas.TuningConfig(TILE_M, TILE_N, TILE_K, max_concurrent_steps=4, grid_tile_width=8)
    found: jax.Array = pallas.all_gather_lhs_matmul(x, w, group, config=tiles, dtype=x.dtype)
    return found
