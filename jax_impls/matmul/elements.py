"""Small products of pallas.py: Pallas for Triton, which loads elements and so takes rows at any address."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton
from jaxtyping import Array, Float

from jax_impls.matmul._configs_pallas import ElementsConfig


def matmul_by_elements(a: Float[Array, "M K"], b: Float[Array, "K N"], config: ElementsConfig) -> Float[Array, "M N"]:
    """The product without copies. Parts of K are added in their order."""
    (M, K), N = a.shape, b.shape[1]
    part = pl.cdiv(pl.cdiv(K, config.block_k), config.splits) * config.block_k
    splits = pl.cdiv(K, part)
    tiles = pl.cdiv(M, config.block_m), pl.cdiv(N, config.block_n)
    # Programs that run at the same time share what they read of the larger operand; a grid has 2^16 - 1 columns.
    rows_first = M < N or tiles[0] >= 2**16
    out = jax.ShapeDtypeStruct((splits, M, N), jnp.float32 if splits > 1 else a.dtype)
    c = pl.pallas_call(
        partial(_kernel, config=config, part=part, rows_first=rows_first),
        out_shape=out,
        grid=(*(tiles if rows_first else reversed(tiles)), splits),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        compiler_params=pltriton.CompilerParams(num_warps=config.num_warps, num_stages=3),
        name="matmul_pallas_elements",
    )(a, b)
    return c[0] if splits == 1 else c.sum(axis=0).astype(a.dtype)


def _kernel(a_ref: Any, b_ref: Any, c_ref: Any, config: ElementsConfig, part: int, rows_first: bool) -> None:
    """One program: the tile (block_m, block_n) of one part of K."""
    (M, K), N = a_ref.shape, b_ref.shape[1]
    row = pl.program_id(0 if rows_first else 1) * config.block_m
    column = pl.program_id(1 if rows_first else 0) * config.block_n
    split = pl.program_id(2)
    rows = (row + lax.iota(jnp.int32, config.block_m))[:, None] < M
    columns = (column + lax.iota(jnp.int32, config.block_n))[None, :] < N

    precision = lax.Precision.HIGH if a_ref.dtype == jnp.float32 else None  # HIGH is tf32

    def step(i: jax.Array, acc: jax.Array) -> jax.Array:
        k = split * part + i * config.block_k
        ks = k + lax.iota(jnp.int32, config.block_k) < K
        of_k = pl.ds(k, config.block_k)
        a = pltriton.load(a_ref.at[pl.ds(row, config.block_m), of_k], mask=rows & ks[None, :], other=0.0)
        b = pltriton.load(b_ref.at[of_k, pl.ds(column, config.block_n)], mask=ks[:, None] & columns, other=0.0)
        return acc + lax.dot(a, b, precision=precision, preferred_element_type=jnp.float32)

    acc = jnp.zeros((config.block_m, config.block_n), jnp.float32)
    steps = pl.cdiv(lax.min(jnp.int32(part), K - split * part), config.block_k)
    acc = lax.fori_loop(0, steps, step, acc)
    tile = c_ref.at[split, pl.ds(row, config.block_m), pl.ds(column, config.block_n)]
    pltriton.store(tile, acc.astype(c_ref.dtype), mask=rows & columns)
