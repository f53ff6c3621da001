"""Matrix product in Pallas for Hopper (Mosaic GPU): one warpgroup loads by TMA, two multiply by wgmma."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

REQUIRES = "sm_90"

SWIZZLE = 128  # bytes: rows of this length, swizzled, serve wgmma and TMA without bank conflicts
CONSUMERS = 2
GPCS = 8  # graphics processing clusters: parts of the device, each with its own way to the L2 cache
ROWS = 64  # of a tile for each consumer: what one wgmma computes


@dataclass(frozen=True)
class Plan:
    """A block computes tiles of c, (CONSUMERS * ROWS, columns); the blocks of a cluster, `cluster` rows and columns of
    them, compute tiles next to each other and share what they read. `stages` steps of K are in flight. The tiles of
    clusters are taken in bands of `band` columns, down one band and up the next."""

    columns: int
    stages: int
    cluster: tuple[int, int]
    band: int

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns that a cluster computes at a time."""
        return CONSUMERS * ROWS * self.cluster[0], self.columns * self.cluster[1]


PLANS = (
    Plan(columns=256, stages=4, cluster=(2, 1), band=8),
    Plan(columns=128, stages=6, cluster=(2, 1), band=8),
    Plan(columns=64, stages=8, cluster=(2, 1), band=8),
)


@partial(jax.jit, static_argnames="precision")
def matmul(a: Float[Array, "M K"], b: Float[Array, "K N"], *, precision: str = "ieee") -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j]; K = 0 gives zeros.

    float16 and bfloat16 (products exact, sums in float32, rounded once), and float32 with precision="tf32": the tensor
    cores truncate its numbers to 11 significant bits. wgmma reads 32-bit operands only along K, so then XLA transposes
    b first, unless it is stored by columns.

    Any M, N, K: tiles may hang over the edges, where TMA reads zeros and writes nothing. But it takes a matrix as whole
    pieces of 8 rows of 128 bytes; if M is not a multiple of 8, N of 64, or K of 64 (32 in tf32), XLA copies a and b
    into larger ones of zeros first, and the result out of one. Operands stored by columns it copies too.

    Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for float32 with precision="ieee",
    which has no use for the tensor cores, and on anything but a Hopper GPU.
    """
    _check(a, b, precision)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", None) != "9.0":
        raise NotImplementedError(f"matmul: wgmma needs a Hopper GPU (compute capability 9.0); JAX runs on {device}")
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return jnp.zeros((M, N), a.dtype)
    blocks = device.core_count
    return _padded_product(a, b, _plan(M, N, blocks), blocks)


def _plan(M: int, N: int, blocks: int) -> Plan:
    """The plan with the least to do for the busiest block; a narrow tile costs more than its share."""

    def cost(plan: Plan) -> int:
        return _rounds(M, N, plan, blocks) * (plan.columns + 32)

    return min(PLANS, key=cost)


def _tiles(M: int, N: int, plan: Plan) -> int:
    return pl.cdiv(M, plan.tile[0]) * pl.cdiv(N, plan.tile[1])


def _rounds(M: int, N: int, plan: Plan, blocks: int) -> int:
    """Tiles that the busiest cluster computes, of as many clusters as there may be."""
    return pl.cdiv(_tiles(M, N, plan), blocks // math.prod(plan.cluster))


def _padded_product(a: Float[Array, "M K"], b: Float[Array, "K N"], plan: Plan, blocks: int) -> Float[Array, "M N"]:
    """The product by `blocks` blocks at most, of matrices with zeros around them where they need it."""
    (M, K), N = a.shape, b.shape[1]
    block_k = SWIZZLE // a.dtype.itemsize
    a = jnp.pad(a, ((0, -M % 8), (0, -K % block_k)))
    b = jnp.pad(b, ((0, -K % block_k), (0, -N % 64)))  # no narrower than the narrowest tile
    return _product(a, b.T if a.dtype == jnp.float32 else b, plan, blocks)[:M, :N]


def _product(a: Float[Array, "M K"], b: Array, plan: Plan, blocks: int) -> Float[Array, "M N"]:
    """c = a b, or a b^T for float32."""
    b_rows = a.dtype != jnp.float32
    M, N = a.shape[0], b.shape[1 if b_rows else 0]
    block_k = SWIZZLE // a.dtype.itemsize
    c_columns = min(block_k, plan.columns)
    buffers = min(2, plan.columns // c_columns)
    # As few clusters as need no more rounds than all would: the device's power is better spent on them.
    clusters = pl.cdiv(_tiles(M, N, plan), _rounds(M, N, plan, blocks))

    def shared(*shape: int) -> Any:
        """In the layout of wgmma: pieces of 8 rows of SWIZZLE bytes."""
        transforms = (plgpu.TilingTransform((8, block_k)), plgpu.SwizzleTransform(SWIZZLE))
        return plgpu.SMEM(shape, a.dtype, transforms=transforms)

    return plgpu.kernel(
        partial(_kernel, plan=plan, clusters=clusters, b_rows=b_rows),
        out_type=jax.ShapeDtypeStruct((M, N), a.dtype),
        scratch_types={
            "a_smem": shared(plan.stages, CONSUMERS * ROWS, block_k),
            "b_smem": shared(plan.stages, *((block_k, plan.columns) if b_rows else (plan.columns, block_k))),
            "c_smem": shared(CONSUMERS, buffers, ROWS, c_columns),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=plan.stages),
            "empty": plgpu.ClusterBarrier(
                collective_axes=("block_row", "block_column"), num_arrivals=CONSUMERS, num_barriers=plan.stages
            ),
        },
        grid=(clusters,),
        grid_names=("cluster",),
        cluster=plan.cluster,
        cluster_names=("block_row", "block_column"),
        num_threads=CONSUMERS + 1,
        thread_name="warpgroup",
        kernel_name="matmul_pallas",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
    )(a, b)


def _dealt(index: jax.Array, clusters: int, tiles: int) -> jax.Array:
    """Which tile is number `index`: of those that are computed at a time each of the GPCS, to which clusters are dealt
    in turn, gets a run. What its multiprocessors ask for at the same time comes from the L2 cache once.
    """
    first = index // clusters * clusters
    gpc, place = (index - first) % GPCS, (index - first) // GPCS
    together = lax.min(jnp.int32(clusters), tiles - first)
    return first + gpc * (together // GPCS) + lax.min(gpc, together % GPCS) + place


def _kernel(
    a_gmem: Any, b_gmem: Any, c_gmem: Any,
    a_smem: Any, b_smem: Any, c_smem: Any, full: Any, empty: Any, plan: Plan, clusters: int, b_rows: bool,
) -> None:  # fmt: skip
    """A persistent cluster computes every so-manieth tile. The last warpgroup of each block is the producer.

    Every stage has two barriers: `full` completes when TMA has written a and b, `empty` when all have read them who
    are to: the consumers of this block and of those that get the same tile of a or b from it.
    """
    (M, K), N = a_gmem.shape, c_gmem.shape[1]
    block_k, (_, buffers, _, c_columns) = a_smem.shape[2], c_smem.shape
    grid = (pl.cdiv(M, plan.tile[0]), pl.cdiv(N, plan.tile[1]))
    warpgroup = lax.axis_index("warpgroup")
    block_row, block_column = lax.axis_index("block_row"), lax.axis_index("block_column")

    def each_tile(body: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]) -> jax.Array:
        """Calls step = body(step, first row, first column): steps of K are counted through all tiles of this block."""

        @plgpu.nd_loop((math.prod(grid),), collective_axes="cluster", init_carry=jnp.int32(0))
        def steps(info: plgpu.NDLoopInfo, carry: jax.Array) -> jax.Array:
            row, column = plgpu.planar_snake(_dealt(info.index[0], clusters, math.prod(grid)), grid, 1, plan.band)
            first_row = row * plan.tile[0] + block_row * (CONSUMERS * ROWS)
            return body(carry, first_row, column * plan.tile[1] + block_column * plan.columns)

        return steps

    def stage_of(step: jax.Array) -> jax.Array:
        return lax.rem(step, jnp.int32(plan.stages))

    @pl.when(warpgroup == CONSUMERS)
    def produce() -> None:
        """Keeps `stages` steps in flight; at the end of a tile it goes on with the next one."""
        plgpu.set_max_registers(40, action="decrease")

        def load_tile(first_step: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            rows, columns = pl.ds(row, CONSUMERS * ROWS), pl.ds(column, plan.columns)

            def load(i: jax.Array, step: jax.Array) -> jax.Array:
                stage, ks = stage_of(step), pl.ds(i * block_k, block_k)

                @pl.when(step >= plan.stages)
                def until_read() -> None:
                    plgpu.barrier_wait(empty.at[stage])

                # Blocks of one row of the cluster each load a part of the tile of a, for all of them; so for b.
                a_tile, b_tile = a_gmem.at[rows, ks], b_gmem.at[ks, columns] if b_rows else b_gmem.at[columns, ks]
                plgpu.copy_gmem_to_smem(a_tile, a_smem.at[stage], full.at[stage], collective_axes="block_column")
                plgpu.copy_gmem_to_smem(b_tile, b_smem.at[stage], full.at[stage], collective_axes="block_row")
                return step + 1

            return lax.fori_loop(0, pl.cdiv(K, block_k), load, first_step)

        steps = each_tile(load_tile)

        @pl.loop(lax.max(steps - plan.stages, jnp.int32(0)), steps)
        def until_all_read(step: jax.Array) -> None:
            """A block must not end before others have arrived at its barriers for the last time."""
            plgpu.barrier_wait(empty.at[stage_of(step)])

    @pl.when(warpgroup < CONSUMERS)
    def consume() -> None:
        """Computes ROWS rows of each tile in float32 registers.

        One wgmma is in flight while the next operands are waited for: a stage is handed back a step late, when the
        wgmma that reads it is known to be over. A finished tile leaves in parts: converted, written to one of the
        buffers, and stored from there by TMA while the next part is written.
        """
        plgpu.set_max_registers(232, action="increase")

        def multiply_tile(first_step: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            def sums(acc: Any) -> tuple[jax.Array, jax.Array]:
                def multiply(i: jax.Array, step: jax.Array) -> jax.Array:
                    stage = stage_of(step)
                    plgpu.barrier_wait(full.at[stage])
                    b_tile = b_smem.at[stage]
                    plgpu.wgmma(acc, a_smem.at[stage, pl.ds(warpgroup * ROWS, ROWS)], b_tile if b_rows else b_tile.T)
                    plgpu.wgmma_wait(1)

                    @pl.when(i > 0)
                    def hand_back() -> None:
                        plgpu.barrier_arrive(empty.at[stage_of(step - 1)])

                    return step + 1

                steps = lax.fori_loop(0, pl.cdiv(K, block_k), multiply, first_step)
                return acc[...], steps

            acc, steps = pl.run_scoped(sums, plgpu.ACC((ROWS, plan.columns), jnp.float32))
            plgpu.barrier_arrive(empty.at[stage_of(steps - 1)])

            for i in range(plan.columns // c_columns):
                part = c_smem.at[warpgroup, i % buffers]
                plgpu.wait_smem_to_gmem(buffers - 1, wait_read_only=True)  # until this buffer has been read
                part[...] = acc[:, i * c_columns : (i + 1) * c_columns].astype(c_gmem.dtype)
                plgpu.commit_smem()
                rows, columns = pl.ds(row + warpgroup * ROWS, ROWS), pl.ds(column + i * c_columns, c_columns)
                plgpu.copy_smem_to_gmem(part, c_gmem.at[rows, columns])
            return steps

        each_tile(multiply_tile)
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)


def _check(a: jax.Array, b: jax.Array, precision: str) -> None:
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {a.shape}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={a.shape}, so b must be ({a.shape[1]}, N); got {b.shape}")
    if a.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"matmul: precision must be 'ieee' or 'tf32' for {a.dtype}; got {precision!r}")
    if precision == "tf32" and a.dtype != jnp.float32:
        raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
    if precision == "ieee" and a.dtype == jnp.float32:
        raise NotImplementedError("matmul: float32 with precision 'ieee' has no use for the tensor cores")
