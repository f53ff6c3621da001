"""Matrix product in Pallas for Triton: masked loads of single elements accept rows at any address without copies."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton
from jaxtyping import Array, Float

from jax_impls.matmul._configs import ElementsConfig, choose_elements, elements_fit
from jax_impls.matmul._limits import check_products, described, multiprocessors

REQUIRES = "sm_90"


@partial(jax.jit, static_argnames="precision")
def matmul(a: Float[Array, "M K"], b: Float[Array, "K N"], *, precision: str = "ieee") -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j]; K = 0 gives zeros.

    float16 and bfloat16 (products exact, sums in float32, rounded once), and float32 with precision="tf32": the tensor
    cores truncate each factor to 11 significant bits. No operand is copied, and rows may begin at any address. If tiles
    leave most of the device idle, K is divided into parts (split-K), whose float32 sums XLA adds in order.

    Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for float32 with precision="ieee",
    for 2^31 elements and more in total, and on anything but a Hopper GPU.
    """
    check_products(a, b, precision)
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return jnp.zeros((M, N), a.dtype)
    if not elements_fit(M, N, K):
        raise NotImplementedError(f"matmul: a, b and c must have below 2^31 elements; got {a.shape} x {b.shape}")
    return matmul_by_elements(a, b, choose_elements(M, N, K, a.dtype.itemsize, multiprocessors()))


def config(a: jax.Array, b: jax.Array, *, precision: str = "ieee") -> str:
    """The tile and the parts of K, such as `elements 64x64 parts=2`."""
    return described(choose_elements(a.shape[0], b.shape[1], a.shape[1], a.dtype.itemsize, multiprocessors()))


def matmul_by_elements(a: Float[Array, "M K"], b: Float[Array, "K N"], config: ElementsConfig) -> Float[Array, "M N"]:
    """The product in tiles of a configuration."""
    (M, K), N = a.shape, b.shape[1]
    part = pl.cdiv(pl.cdiv(K, config.block_k), config.splits) * config.block_k
    splits = pl.cdiv(K, part)
    tiles = pl.cdiv(M, config.block_m), pl.cdiv(N, config.block_n)
    # The first axis is that of the smaller dimension, so that concurrent programs share their part of the larger
    # operand. The second axis of a grid has at most 2^16 - 1 programs.
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
    """One program computes the tile (block_m, block_n) of one part of K."""
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
