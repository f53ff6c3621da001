"""Matrix product in Pallas for Hopper (Mosaic GPU): one warpgroup loads by TMA, one or two multiply by wgmma."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from jax_impls._runtime.mosaic import plgpu
from jax_impls.matmul._configs import WGMMA_M, TileConfig, choose_tiles, cluster_count
from jax_impls.matmul._limits import check_products, described, multiprocessors

REQUIRES = "sm_90"

SWIZZLE = 128  # bytes per row of shared memory: rows of 128 bytes, swizzled, serve wgmma and TMA without bank conflicts
GPCS = 8  # graphics processing clusters of the device, each with its own path to the L2 cache


@partial(jax.jit, static_argnames="precision")
def matmul(a: Float[Array, "M K"], b: Float[Array, "K N"], *, precision: str = "ieee") -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j]; K = 0 gives zeros.

    float16 and bfloat16 (products exact, sums in float32, rounded once), and float32 with precision="tf32": the tensor
    cores truncate each factor to 11 significant bits. wgmma reads 32-bit operands only with K contiguous, so XLA
    transposes b first, unless it is column-major.

    Any M, N, K: TMA reads zeros beyond the edges and writes nothing there. It needs whole blocks of 8 rows of 128
    bytes. If M is not a multiple of 8, N of 64, or K of 64 (32 for tf32), XLA first copies a and b into padded
    matrices, and finally copies the result out of a padded one. XLA also copies column-major operands.

    If tiles leave most of the device idle, K is divided into parts (split-K), whose float32 sums XLA adds in order.

    Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for float32 with precision="ieee",
    which tensor cores do not compute, and on anything but a Hopper GPU.
    """
    check_products(a, b, precision)
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return jnp.zeros((M, N), a.dtype)
    chosen = choose_tiles(M, N, K, a.dtype.itemsize, multiprocessors())
    return padded_matmul(a, b, chosen, multiprocessors())


def config(a: jax.Array, b: jax.Array, *, precision: str = "ieee") -> str:
    """The tile of a cluster and the parts of K, such as `pallas 256x256 parts=1`."""
    return described(choose_tiles(a.shape[0], b.shape[1], a.shape[1], a.dtype.itemsize, multiprocessors()))


def padded_matmul(
    a: Float[Array, "M K"], b: Float[Array, "K N"], config: TileConfig, max_blocks: int
) -> Float[Array, "M N"]:
    """The product by at most `max_blocks` blocks. Operands are padded with zeros as TMA requires."""
    (M, K), N = a.shape, b.shape[1]
    block_k = SWIZZLE // a.dtype.itemsize
    a = jnp.pad(a, ((0, -M % 8), (0, -K % block_k)))
    b = jnp.pad(b, ((0, -K % block_k), (0, -N % 64)))  # at least the narrowest tile
    return _matmul(a, b.T if a.dtype == jnp.float32 else b, config, max_blocks)[:M, :N]


def _matmul(a: Float[Array, "M K"], b: Array, config: TileConfig, max_blocks: int) -> Float[Array, "M N"]:
    """c = a b, or a b^T for float32."""
    b_rows = a.dtype != jnp.float32
    M, N = a.shape[0], b.shape[1 if b_rows else 0]
    block_k = SWIZZLE // a.dtype.itemsize
    c_type = jnp.dtype(a.dtype if config.splits == 1 else jnp.float32)
    c_columns = min(SWIZZLE // c_type.itemsize, config.block_n)
    parts = config.block_n // c_columns
    buffers = next(count for count in (2, 3, 1) if parts % count == 0)  # buffers alternate across tiles too
    clusters = cluster_count(M, N, config, max_blocks)

    def shared(*shape: int, dtype: Any = a.dtype) -> Any:
        """Shared memory in the layout of wgmma: blocks of 8 rows of SWIZZLE bytes."""
        transforms = (plgpu.TilingTransform((8, SWIZZLE // dtype.itemsize)), plgpu.SwizzleTransform(SWIZZLE))
        return plgpu.SMEM(shape, dtype, transforms=transforms)

    c = plgpu.kernel(
        partial(_kernel, config=config, clusters=clusters, b_rows=b_rows),
        out_type=jax.ShapeDtypeStruct((config.splits, M, N), c_type),
        scratch_types={
            "a_smem": shared(config.num_stages, config.consumers * WGMMA_M, block_k),
            "b_smem": shared(config.num_stages, *((block_k, config.block_n) if b_rows else (config.block_n, block_k))),
            "c_smem": shared(config.consumers, buffers, WGMMA_M, c_columns, dtype=c_type),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=config.num_stages),
            "empty": plgpu.ClusterBarrier(
                collective_axes=("block_row", "block_column"),
                num_arrivals=config.consumers,
                num_barriers=config.num_stages,
            ),
        },
        grid=(clusters,),
        grid_names=("cluster",),
        cluster=config.cluster,
        cluster_names=("block_row", "block_column"),
        num_threads=config.consumers + 1,
        thread_name="warpgroup",
        kernel_name="matmul_pallas",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
    )(a, b)
    return c[0] if config.splits == 1 else c.sum(axis=0).astype(a.dtype)


def gpc_tile(index: jax.Array, clusters: int, tiles: int) -> jax.Array:
    """Tile number for position `index` in the order of computation. Each GPC gets consecutive tiles of a wave.

    The device assigns clusters to the GPCs in turn. The L2 cache answers equal simultaneous requests of a GPC once.
    """
    first = index // clusters * clusters
    gpc, in_gpc = (index - first) % GPCS, (index - first) // GPCS
    wave = lax.min(jnp.int32(clusters), tiles - first)  # tiles in this wave
    return first + gpc * (wave // GPCS) + lax.min(gpc, wave % GPCS) + in_gpc


def _kernel(
    a_gmem: Any, b_gmem: Any, c_gmem: Any,
    a_smem: Any, b_smem: Any, c_smem: Any, full: Any, empty: Any, config: TileConfig, clusters: int, b_rows: bool,
) -> None:  # fmt: skip
    """A persistent cluster computes tiles number cluster, cluster + clusters, ..., one part of K after the other.

    In each block the last warpgroup is the producer, the others are consumers.
    Every stage has two barriers. `full` completes when TMA has written a and b; `empty` when all readers are done: the
    consumers of this block and of the blocks to which it multicasts a or b.
    """
    (M, K), N = a_gmem.shape, c_gmem.shape[2]
    block_k, (_, buffers, _, c_columns) = a_smem.shape[2], c_smem.shape
    grid = (pl.cdiv(M, config.cluster_tile[0]), pl.cdiv(N, config.cluster_tile[1]))
    tiles, k_steps = math.prod(grid), pl.cdiv(K, block_k)
    part_steps = pl.cdiv(k_steps, config.splits)
    warpgroup = lax.axis_index("warpgroup")
    block_row, block_column = lax.axis_index("block_row"), lax.axis_index("block_column")

    def each_tile(body: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]) -> jax.Array:
        """Calls step = body(step, split, first row, first column) per tile; `step` counts steps of K across tiles."""

        @plgpu.nd_loop((config.splits * tiles,), collective_axes="cluster", init_carry=jnp.int32(0))
        def steps(info: plgpu.NDLoopInfo, carry: jax.Array) -> jax.Array:
            index = gpc_tile(info.index[0], clusters, config.splits * tiles)
            row, column = plgpu.planar_snake(index % tiles, grid, 1, config.grid_tile_width)
            first_row = row * config.cluster_tile[0] + block_row * (config.consumers * WGMMA_M)
            first_column = column * config.cluster_tile[1] + block_column * config.block_n
            return body(carry, index // tiles, first_row, first_column)

        return steps

    def steps_of(split: jax.Array) -> jax.Array | int:
        return k_steps if config.splits == 1 else lax.min(jnp.int32(part_steps), k_steps - split * part_steps)

    def stage_of(step: jax.Array) -> jax.Array:
        return lax.rem(step, jnp.int32(config.num_stages))

    @pl.when(warpgroup == config.consumers)
    def produce() -> None:
        """Keeps num_stages steps in flight, across tiles."""
        if config.consumers > 1:  # a single consumer has enough registers
            plgpu.set_max_registers(40, action="decrease")

        def load_tile(first_step: jax.Array, split: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            rows, columns = pl.ds(row, config.consumers * WGMMA_M), pl.ds(column, config.block_n)

            def load(i: jax.Array, step: jax.Array) -> jax.Array:
                stage, ks = stage_of(step), pl.ds((split * part_steps + i) * block_k, block_k)

                @pl.when(step >= config.num_stages)
                def wait_until_read() -> None:
                    plgpu.barrier_wait(empty.at[stage])

                # The blocks of a cluster row each load a part of the tile of a and multicast it; likewise for b.
                a_tile, b_tile = a_gmem.at[rows, ks], b_gmem.at[ks, columns] if b_rows else b_gmem.at[columns, ks]
                plgpu.copy_gmem_to_smem(a_tile, a_smem.at[stage], full.at[stage], collective_axes="block_column")
                plgpu.copy_gmem_to_smem(b_tile, b_smem.at[stage], full.at[stage], collective_axes="block_row")
                return step + 1

            return lax.fori_loop(0, steps_of(split), load, first_step)

        steps = each_tile(load_tile)

        @pl.loop(lax.max(steps - config.num_stages, jnp.int32(0)), steps)
        def wait_until_all_read(step: jax.Array) -> None:
            """A block must not exit before other blocks have arrived at its barriers for the last time."""
            plgpu.barrier_wait(empty.at[stage_of(step)])

    @pl.when(warpgroup < config.consumers)
    def consume() -> None:
        """Computes WGMMA_M rows of each tile in float32 registers.

        One wgmma stays in flight while the warpgroup waits for the next operands. It releases a stage one step late,
        when the wgmma that reads the stage has finished. Epilogue: the tile is stored in parts; each part is converted,
        written to a buffer, and copied from there by TMA while the next part is written.
        """
        if config.consumers > 1:
            plgpu.set_max_registers(232, action="increase")

        def multiply_tile(first_step: jax.Array, split: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            def sums(acc: Any) -> tuple[jax.Array, jax.Array]:
                def multiply(i: jax.Array, step: jax.Array) -> jax.Array:
                    stage = stage_of(step)
                    plgpu.barrier_wait(full.at[stage])
                    b_tile = b_smem.at[stage]
                    plgpu.wgmma(
                        acc, a_smem.at[stage, pl.ds(warpgroup * WGMMA_M, WGMMA_M)], b_tile if b_rows else b_tile.T
                    )
                    plgpu.wgmma_wait(1)

                    @pl.when(i > 0)
                    def release() -> None:
                        plgpu.barrier_arrive(empty.at[stage_of(step - 1)])

                    return step + 1

                steps = lax.fori_loop(0, steps_of(split), multiply, first_step)
                return acc[...], steps

            acc, steps = pl.run_scoped(sums, plgpu.ACC((WGMMA_M, config.block_n), jnp.float32))
            plgpu.barrier_arrive(empty.at[stage_of(steps - 1)])

            for i in range(config.block_n // c_columns):
                part = c_smem.at[warpgroup, i % buffers]
                plgpu.wait_smem_to_gmem(buffers - 1, wait_read_only=True)  # until TMA has read this buffer
                part[...] = acc[:, i * c_columns : (i + 1) * c_columns].astype(c_gmem.dtype)
                plgpu.commit_smem()
                rows, columns = pl.ds(row + warpgroup * WGMMA_M, WGMMA_M), pl.ds(column + i * c_columns, c_columns)
                plgpu.copy_smem_to_gmem(part, c_gmem.at[split, rows, columns])
            return steps

        each_tile(multiply_tile)
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
