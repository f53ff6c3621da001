"""Matrix product in Pallas for Hopper (Mosaic GPU): one warpgroup loads by TMA, two multiply by wgmma."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from jax_impls._arguments import check_hopper, check_matmul
from jax_impls._configs_matmul_pallas import (
    ROW_BYTES,
    WGMMA_M,
    ElementsConfig,
    TileConfig,
    b_columns,
    choose_config,
    cluster_count,
)
from jax_impls._matmul_pallas_elements import matmul_by_elements

REQUIRES = "sm_90"

SWIZZLE = ROW_BYTES  # rows of shared memory, swizzled, serve wgmma and TMA without bank conflicts
GPCS = 8  # graphics processing clusters of the device, each with its own path to the L2 cache


@partial(jax.jit, static_argnames="precision")
def matmul(a: Float[Array, "M K"], b: Float[Array, "K N"], *, precision: str = "ieee") -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j]; K = 0 gives zeros.

    float16 and bfloat16 (products exact, sums in float32, rounded once), and float32 with precision="tf32": the tensor
    cores truncate each factor to 11 significant bits. wgmma reads 32-bit operands only with K contiguous, so XLA
    transposes b first, unless it is column-major.

    Any M, N, K: TMA reads zeros beyond the edges and writes nothing there. Rows must begin at multiples of 16 bytes,
    and in tiles of more than 64 columns b must have whole blocks of 64. Where that is not so, XLA first copies the
    matrix into a padded one, and at the end the result out of one; small products are computed without copies by
    `matmul_by_elements`. XLA also copies column-major operands. Where the tiles are too few for the device, K is
    divided into parts, whose float32 sums XLA adds in their order.

    Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for float32 with precision="ieee",
    which has no use for the tensor cores, and on anything but a Hopper GPU.
    """
    check_matmul(a, b, precision=precision)
    if precision == "ieee" and a.dtype == jnp.float32:
        raise NotImplementedError("matmul: float32 with precision 'ieee' has no use for the tensor cores")
    check_hopper("matmul")
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return jnp.zeros((M, N), a.dtype)
    max_blocks = jax.devices()[0].core_count
    config = choose_config(M, N, K, a.dtype.itemsize, max_blocks)
    if isinstance(config, ElementsConfig):
        return matmul_by_elements(a, b, config)
    return padded_matmul(a, b, config, max_blocks)


def padded_matmul(
    a: Float[Array, "M K"], b: Float[Array, "K N"], config: TileConfig, max_blocks: int
) -> Float[Array, "M N"]:
    """The product by at most `max_blocks` blocks, of matrices padded with zeros where TMA needs it."""
    K, N = b.shape
    pitch = 16 // a.dtype.itemsize  # elements of 16 bytes
    a = jnp.pad(a, ((0, 0), (0, -K % pitch)))
    b = jnp.pad(b, ((0, -K % pitch), (0, -N % b_columns(config, a.dtype.itemsize))))
    return _matmul(a, b.T if a.dtype == jnp.float32 else b, N + -N % pitch, config, max_blocks)[:, :N]


def _matmul(a: Float[Array, "M K"], b: Array, N: int, config: TileConfig, max_blocks: int) -> Float[Array, "M N"]:
    """The first N columns of c = a b, or of a b^T for float32."""
    (M, K), b_rows = a.shape, a.dtype != jnp.float32
    block_k = SWIZZLE // a.dtype.itemsize
    config = replace(config, splits=config.splits_of(pl.cdiv(K, block_k)))
    splits = config.splits
    c_type = jnp.float32 if splits > 1 else a.dtype
    c_columns = SWIZZLE // jnp.dtype(c_type).itemsize
    parts = config.block_n // c_columns
    buffers = next(count for count in (2, 3, 1) if parts % count == 0)  # so that they alternate across tiles too
    clusters = cluster_count(M, N, config, max_blocks)

    def shared(dtype: Any, *shape: int) -> Any:
        """Shared memory in the layout of wgmma, tile by tile: blocks of 8 rows of SWIZZLE bytes."""
        *outer, rows, columns = shape
        row = SWIZZLE // jnp.dtype(dtype).itemsize
        return plgpu.SMEM((*outer, rows // 8, columns // row, 8, row), dtype)

    b_tile = (block_k, config.block_n) if b_rows else (config.block_n, block_k)
    c = plgpu.kernel(
        partial(_kernel, config=config, clusters=clusters, b_rows=b_rows),
        out_type=jax.ShapeDtypeStruct((splits, M, N), c_type),
        scratch_types={
            "a_smem": shared(a.dtype, config.num_stages, config.consumers, WGMMA_M, block_k),
            "b_smem": shared(a.dtype, config.num_stages, *b_tile),
            "c_smem": shared(c_type, config.consumers, buffers, WGMMA_M, c_columns),
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
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
    )(a, b)
    return c[0] if splits == 1 else c.sum(axis=0).astype(a.dtype)


def transformed(ref: Any, *transforms: Any) -> Any:
    """A part of memory without transforms, as if it had been allocated with these, the last of them first."""
    undone = tuple(each.undo(None) for each in reversed(transforms))
    return type(ref)(ref.ref, (*ref.transforms, *undone))


def as_tiles(ref: Any) -> Any:
    """(rows, columns) of shared memory as wgmma reads and registers are written: blocks of 8 rows of SWIZZLE bytes."""
    return transformed(ref, plgpu.TilingTransform(ref.shape[-2:]), plgpu.SwizzleTransform(SWIZZLE))


def as_rows(ref: Any) -> Any:
    """The same memory as TMA copies it if it is SWIZZLE bytes wide: rows, with any number of them and of columns in the
    matrix. A copy of blocks needs whole blocks in the matrix.
    """
    *outer, _, rows, columns = ref.shape
    return transformed(ref.reshape(math.prod(outer) * rows, columns), plgpu.SwizzleTransform(SWIZZLE))


def gpc_tile(index: jax.Array, clusters: int, tiles: int) -> jax.Array:
    """The tile that is computed as number `index`, so that each GPC gets consecutive tiles of a wave.

    Clusters are assigned to the GPCS in turn. What the multiprocessors of one GPC request at the same time comes from
    the L2 cache once.
    """
    first = index // clusters * clusters
    gpc, in_gpc = (index - first) % GPCS, (index - first) // GPCS
    wave = lax.min(jnp.int32(clusters), tiles - first)  # tiles in this wave
    return first + gpc * (wave // GPCS) + lax.min(gpc, wave % GPCS) + in_gpc


def _kernel(
    a_gmem: Any, b_gmem: Any, c_gmem: Any,
    a_smem: Any, b_smem: Any, c_smem: Any, full: Any, empty: Any,
    config: TileConfig, clusters: int, b_rows: bool,
) -> None:  # fmt: skip
    """A persistent cluster computes tiles cluster, cluster + clusters, ... of the parts of K, one part after the other.

    In each block the last warpgroup is the producer, the others are consumers.
    Every stage has two barriers: `full` completes when TMA has written a and b; `empty` when all readers are done: the
    consumers of this block and of the blocks to which it multicasts a or b.
    """
    (M, K), N = a_gmem.shape, c_gmem.shape[2]
    block_k, (_, buffers, *_, c_columns) = a_smem.shape[-1], c_smem.shape
    block_m, k_steps = config.consumers * WGMMA_M, pl.cdiv(K, block_k)
    part_steps = pl.cdiv(k_steps, config.splits)
    grid = (pl.cdiv(M, config.cluster_tile[0]), pl.cdiv(N, config.cluster_tile[1]))
    tiles = math.prod(grid)
    warpgroup = lax.axis_index("warpgroup")
    block_row, block_column = lax.axis_index("block_row"), lax.axis_index("block_column")

    def each_tile(body: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]) -> jax.Array:
        """Calls step = body(step, part, first row, first column) per tile; `step` counts steps across tiles."""

        @plgpu.nd_loop((tiles * config.splits,), collective_axes="cluster", init_carry=jnp.int32(0))
        def steps(info: plgpu.NDLoopInfo, carry: jax.Array) -> jax.Array:
            index = gpc_tile(info.index[0], clusters, tiles * config.splits)
            row, column = plgpu.planar_snake(lax.rem(index, jnp.int32(tiles)), grid, 1, config.grid_tile_width)
            first_row = row * config.cluster_tile[0] + block_row * block_m
            first_column = column * config.cluster_tile[1] + block_column * config.block_n
            return body(carry, lax.div(index, jnp.int32(tiles)), first_row, first_column)

        return steps

    def stage_of(step: jax.Array) -> jax.Array:
        return lax.rem(step, jnp.int32(config.num_stages))

    def steps_of(part: jax.Array) -> jax.Array:
        return lax.min(jnp.int32(part_steps), k_steps - part * part_steps)

    @pl.when(warpgroup == config.consumers)
    def produce() -> None:
        """Keeps num_stages steps in flight, across tiles."""
        if config.consumers > 1:  # threads of two warpgroups have as many as they can use
            plgpu.set_max_registers(40, action="decrease")

        def load_tile(first_step: jax.Array, part: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            rows, columns = pl.ds(row, block_m), pl.ds(column, config.block_n)

            def load(i: jax.Array, step: jax.Array) -> jax.Array:
                stage, ks = stage_of(step), pl.ds((part * part_steps + i) * block_k, block_k)

                @pl.when(step >= config.num_stages)
                def wait_until_read() -> None:
                    plgpu.barrier_wait(empty.at[stage])

                # The blocks of a cluster row each load a part of the tile of a and multicast it; likewise for b.
                b_tile = b_gmem.at[ks, columns] if b_rows else b_gmem.at[columns, ks]
                b_stage = (as_rows if not b_rows or config.block_n == block_k else as_tiles)(b_smem.at[stage])
                plgpu.copy_gmem_to_smem(
                    a_gmem.at[rows, ks], as_rows(a_smem.at[stage]), full.at[stage], collective_axes="block_column"
                )
                plgpu.copy_gmem_to_smem(b_tile, b_stage, full.at[stage], collective_axes="block_row")
                return step + 1

            return lax.fori_loop(0, steps_of(part), load, first_step)

        steps = each_tile(load_tile)

        @pl.loop(lax.max(steps - config.num_stages, jnp.int32(0)), steps)
        def wait_until_all_read(step: jax.Array) -> None:
            """A block must not exit before other blocks have arrived at its barriers for the last time."""
            plgpu.barrier_wait(empty.at[stage_of(step)])

    @pl.when(warpgroup < config.consumers)
    def consume() -> None:
        """Computes WGMMA_M rows of each tile in float32 registers.

        One wgmma stays in flight while the warpgroup waits for the next operands: it releases a stage one step late,
        when the wgmma that reads the stage is known to have finished. Epilogue: the tile is stored in parts; each is
        converted, written to a buffer, and copied from there by TMA while the next part is written.
        """
        if config.consumers > 1:
            plgpu.set_max_registers(232, action="increase")

        def multiply_tile(first_step: jax.Array, part: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            def sums(acc: Any) -> tuple[jax.Array, jax.Array]:
                def multiply(i: jax.Array, step: jax.Array) -> jax.Array:
                    stage = stage_of(step)
                    plgpu.barrier_wait(full.at[stage])
                    b_tile = as_tiles(b_smem.at[stage])
                    b_tile = b_tile if b_rows else plgpu.transpose_ref(b_tile, (1, 0))
                    plgpu.wgmma(acc, as_tiles(a_smem.at[stage, warpgroup]), b_tile)
                    plgpu.wgmma_wait(1)

                    @pl.when(i > 0)
                    def release() -> None:
                        plgpu.barrier_arrive(empty.at[stage_of(step - 1)])

                    return step + 1

                steps = lax.fori_loop(0, steps_of(part), multiply, first_step)
                return acc[...], steps

            acc, steps = pl.run_scoped(sums, plgpu.ACC((WGMMA_M, config.block_n), jnp.float32))
            plgpu.barrier_arrive(empty.at[stage_of(steps - 1)])

            for i in range(config.block_n // c_columns):
                buffer = c_smem.at[warpgroup, i % buffers]
                plgpu.wait_smem_to_gmem(buffers - 1, wait_read_only=True)  # until TMA has read this buffer
                as_tiles(buffer)[...] = acc[:, i * c_columns : (i + 1) * c_columns].astype(c_gmem.dtype)
                plgpu.commit_smem()
                rows, columns = pl.ds(row + warpgroup * WGMMA_M, WGMMA_M), pl.ds(column + i * c_columns, c_columns)
                plgpu.copy_smem_to_gmem(as_rows(buffer), c_gmem.at[part, rows, columns])
            return steps

        each_tile(multiply_tile)
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
