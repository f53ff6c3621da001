"""Checks and descriptions that the Pallas products of this folder share."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_impls._runtime.arguments import check_hopper
from jax_impls._runtime.contract import check_matmul
from jax_impls.matmul._configs import Config, TileConfig


def check_products(a: jax.Array, b: jax.Array, precision: str) -> None:
    """Raises ValueError for inconsistent operands; NotImplementedError for float32 with "ieee", and on anything but a
    Hopper GPU."""
    check_matmul(a, b, precision=precision)
    if precision == "ieee" and a.dtype == jnp.float32:
        raise NotImplementedError("matmul: tensor cores cannot multiply float32 with precision 'ieee'")
    check_hopper("matmul")


def multiprocessors() -> int:
    """Streaming multiprocessors of the GPU."""
    count: int = jax.devices()[0].core_count
    return count


def described(config: Config) -> str:
    """Describes kernel, tile and parts of K, such as `pallas 128x256 parts=2` or `elements 64x64 parts=1`."""
    if isinstance(config, TileConfig):
        rows, columns = config.cluster_tile
        return f"pallas {rows}x{columns} parts={config.splits}"
    return f"elements {config.block_m}x{config.block_n} parts={config.splits}"
