"""The kernel of pallas.py: one warpgroup loads by TMA, the others overlap products with the softmax."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from jax_impls._runtime.mosaic import plgpu

WGMMA_M = 64  # queries per consumer
SWIZZLE = 128  # bytes per shared-memory row
LOG2E = math.log2(math.e)
TILE_STEPS = 2.0  # fixed time of a tile, in units of the time of one block of keys
L2_BYTES = 24 * 2**20  # part of the L2 cache for keys and values of the heads in progress


@dataclass(frozen=True)
class Config:
    """A block computes consumers * WGMMA_M queries of a head, block_k keys at a time, num_stages blocks in flight."""

    consumers: int
    block_k: int
    num_stages: int
    persistent: bool = True
    """One block per multiprocessor, which needs shared memory for results. Otherwise one block per tile."""

    @property
    def registers(self) -> tuple[int, int]:
        """Registers per thread of the producer, and of a consumer."""
        return (40, 232) if self.consumers == 2 else (32, 160)


CONFIGS = {64: Config(3, 128, 3), 128: Config(2, 128, 2), 256: Config(2, 64, 2, persistent=False)}


def forward(
    q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, sm_scale: float, config: Config | None = None
) -> tuple[jax.Array, jax.Array]:
    """The output, and the base-2 logarithm of each row's sum of exponentials, (B, H, at least S_q) in float32.

    D is a key of CONFIGS, `sm_scale` is above 0. The logarithm is infinite for a row that sees no key, and beyond S_q.
    """
    (B, H, S_q, D), S_k = q.shape, k.shape[2]
    q, k, v = (whole_blocks(x) for x in (q, k, v))
    config = config or CONFIGS[D]
    rows = config.consumers * WGMMA_M
    tiles = pl.cdiv(S_q, rows)
    group = min(B * H, max(1, L2_BYTES // (2 * S_k * D * q.dtype.itemsize))) if causal else 1

    blocks = min(multiprocessors(), B * H * tiles) if config.persistent else B * H * tiles
    schedule = schedule_of(B * H, (S_q, S_k), config, causal, group, blocks) if config.persistent else [[0]]
    o_smem = {"o_smem": tiled((config.consumers, WGMMA_M, D), q.dtype)} if config.persistent else {}
    o, log_sums = plgpu.kernel(
        partial(_kernel, lengths=(S_q, S_k), config=config, causal=causal, scale=sm_scale * LOG2E, group=group),
        out_type=(
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((B, H, tiles * rows), jnp.float32),
        ),
        scratch_types={
            "q_smem": tiled((config.consumers, WGMMA_M, D), q.dtype),
            "k_smem": tiled((config.num_stages, config.block_k, D), q.dtype),
            "v_smem": tiled((config.num_stages, config.block_k, D), q.dtype),
            **o_smem,
            "log_smem": plgpu.SMEM((config.consumers, WGMMA_M), jnp.float32),
            "q_full": plgpu.Barrier(num_barriers=config.consumers),
            "q_empty": plgpu.Barrier(num_barriers=config.consumers),
            "k_full": plgpu.Barrier(num_barriers=config.num_stages),
            "v_full": plgpu.Barrier(num_barriers=config.num_stages),
            "k_empty": plgpu.Barrier(num_arrivals=config.consumers, num_barriers=config.num_stages),
            "v_empty": plgpu.Barrier(num_arrivals=config.consumers, num_barriers=config.num_stages),
        },
        grid=(blocks,),
        grid_names=("block",),
        num_threads=config.consumers + 1,
        thread_name="warpgroup",
        kernel_name="attention_pallas",
        compiler_params=plgpu.CompilerParams(approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
    )(jnp.asarray(schedule, jnp.int32), q, k, v)
    return o[:, :, :S_q], log_sums


def multiprocessors() -> int:
    """Multiprocessors of the device; those of an H200 if a kernel is only lowered, without a device."""
    device = jax.devices()[0]
    return device.core_count if device.platform == "gpu" else 132


def whole_blocks(x: jax.Array) -> jax.Array:
    """Pads x (B, H, S, D) so that S is a multiple of 8: TMA needs whole blocks of 8 rows."""
    return jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % 8), (0, 0)))


def tiled(shape: tuple[int, ...], dtype: Any) -> Any:
    """Shared memory in the layout of wgmma: blocks of 8 rows of SWIZZLE bytes."""
    transforms = (plgpu.TilingTransform((8, SWIZZLE // dtype.itemsize)), plgpu.SwizzleTransform(SWIZZLE))
    return plgpu.SMEM(shape, dtype, transforms=transforms)


def tile_of(index: jax.Array, heads: int, tiles: int, group: int) -> tuple[jax.Array, jax.Array]:
    """Head and query tile of a block. `group` heads take turns; last tiles come first, since they see the most keys."""
    per_group = group * tiles
    first_head = index // per_group * group
    in_group = lax.min(jnp.int32(group), heads - first_head)  # the last group may be smaller
    rest = index % per_group
    return first_head + rest % in_group, tiles - 1 - rest // in_group


def schedule_of(
    heads: int, lengths: tuple[int, int], config: Config, causal: bool, group: int, blocks: int
) -> list[list[int]]:
    """For each block the number of its tiles, then head * tiles + tile for each of them.

    The heads come in groups of `group`, whose keys stay in the L2 cache. Within a group the longest tile comes first,
    and each tile goes to the block with the least work.
    """
    (S_q, S_k), rows = lengths, config.consumers * WGMMA_M
    tiles = pl.cdiv(S_q, rows)

    def cost(tile: int) -> float:
        """Time of a tile, in units of one block of keys. It is shorter if some consumers have no rows."""
        seen = min(S_k, (tile + 1) * rows + S_k - S_q) if causal else S_k
        used = min(rows, S_q - tile * rows) / rows
        return max(1, pl.cdiv(seen, config.block_k)) * (1 + used) / 2 + TILE_STEPS

    load = [(0.0, block) for block in range(blocks)]
    lists: list[list[int]] = [[] for _ in range(blocks)]
    for first in range(0, heads, group):
        of_group = [(head, tile) for tile in reversed(range(tiles)) for head in range(first, min(heads, first + group))]
        for head, tile in of_group:
            least, block = load[0]
            lists[block].append(head * tiles + tile)
            heapq.heapreplace(load, (least + cost(tile), block))
    longest = max(map(len, lists))
    return [[len(each), *each, *[0] * (longest - len(each))] for each in lists]


def _kernel(
    schedule: Any, q_gmem: Any, k_gmem: Any, v_gmem: Any, o_gmem: Any, log_gmem: Any,
    q_smem: Any, k_smem: Any, v_smem: Any, log_smem: Any,
    q_full: Any, q_empty: Any, k_full: Any, v_full: Any, k_empty: Any, v_empty: Any,
    lengths: tuple[int, int], config: Config, causal: bool, scale: float, group: int, o_smem: Any = None,
) -> None:  # fmt: skip
    """One block: computes each of its tiles, `consumers` parts of queries, over all keys that they see.

    Keys and values have separate rings: `full` completes when TMA has written a stage, `empty` when all consumers
    have read it.
    """
    (B, H, _, D), H_kv, (S_q, S_k) = q_gmem.shape, k_gmem.shape[1], lengths
    block_k, stages, rows = config.block_k, config.num_stages, config.consumers * WGMMA_M
    tiles = pl.cdiv(S_q, rows)
    block = lax.axis_index("block")
    warpgroup = lax.axis_index("warpgroup")
    shift = S_k - S_q  # query i sees the keys up to i + shift

    def each_tile(body: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
        """Calls ring = body(turn, ring) per tile; `ring` counts the blocks of keys of earlier tiles."""
        if config.persistent:
            return lax.fori_loop(0, schedule[block, 0], body, jnp.int32(0))
        return body(jnp.int32(0), jnp.int32(0))

    def place(turn: jax.Array) -> tuple[jax.Array, ...]:
        """Batch entry, head of the queries and of the keys, and first row of a tile."""
        if config.persistent:
            index = schedule[block, turn + 1]
            head, tile = index // tiles, index % tiles
        else:
            head, tile = tile_of(block, B * H, tiles, group)
        return head // H, head % H, (head % H) // (H // H_kv), tile * rows

    def steps_for(end_row: jax.Array) -> jax.Array:
        """Blocks of keys that queries before end_row see; at least one, so that every consumer has a result."""
        seen = lax.min(jnp.int32(S_k), end_row + shift) if causal else jnp.int32(S_k)
        return lax.max(jnp.int32(1), pl.cdiv(seen, block_k))

    def slot(step: jax.Array) -> jax.Array:
        return lax.rem(step, jnp.int32(stages))

    @pl.when(warpgroup == config.consumers)
    def produce() -> None:
        plgpu.set_max_registers(config.registers[0], action="decrease")

        def load_tile(turn: jax.Array, first: jax.Array) -> jax.Array:
            batch, query_head, key_head, block_row = place(turn)
            steps = steps_for(block_row + rows)

            def load_queries() -> None:
                for consumer in range(config.consumers):
                    if config.persistent:
                        pl.when(turn > 0)(partial(plgpu.barrier_wait, q_empty.at[consumer]))
                    queries = q_gmem.at[batch, query_head, pl.ds(block_row + consumer * WGMMA_M, WGMMA_M)]
                    plgpu.copy_gmem_to_smem(queries, q_smem.at[consumer], q_full.at[consumer])

            def load(i: jax.Array, at: jax.Array) -> jax.Array:
                keys = pl.ds(i * block_k, block_k)
                for gmem, smem, full, empty in ((k_gmem, k_smem, k_full, k_empty), (v_gmem, v_smem, v_full, v_empty)):
                    pl.when(at >= stages)(partial(plgpu.barrier_wait, empty.at[slot(at)]))
                    plgpu.copy_gmem_to_smem(gmem.at[batch, key_head, keys], smem.at[slot(at)], full.at[slot(at)])

                if config.persistent:  # after the first keys: the previous tile's queries may still be read
                    pl.when(i == 0)(load_queries)
                return at + 1

            if not config.persistent:
                load_queries()
            return lax.fori_loop(0, steps, load, first)

        end = each_tile(load_tile)

        @pl.loop(lax.max(end - stages, jnp.int32(0)), end)
        def wait_until_all_read(step: jax.Array) -> None:
            plgpu.barrier_wait(k_empty.at[slot(step)])
            plgpu.barrier_wait(v_empty.at[slot(step)])

        for consumer in range(config.consumers if config.persistent else 0):
            plgpu.barrier_wait(q_empty.at[consumer])

    @pl.when(warpgroup < config.consumers)
    def consume() -> None:
        """Computes the scores of the next keys at the same time as the product with the last values.

        The softmax of the new scores runs while the second product does.
        """
        plgpu.set_max_registers(config.registers[1], action="increase")

        def compute_tile(turn: jax.Array, ring: jax.Array) -> jax.Array:
            batch, query_head, _, block_row = place(turn)
            steps = steps_for(block_row + rows)
            first_row = block_row + warpgroup * WGMMA_M
            q_tile = q_smem.at[warpgroup]
            layout = plgpu.Layout.WGMMA
            per_row = layout.reduce(1)

            def spread(x: jax.Array, columns: int) -> jax.Array:
                return lax.broadcast_in_dim(x, (WGMMA_M, columns), [0])

            mine = jnp.where(first_row < S_q, steps_for(first_row + WGMMA_M), 1)  # rows beyond S_q are not written
            unmasked = lax.max(first_row + shift + 1, 0) // block_k if causal else S_k // block_k

            def masked(s: jax.Array, step: jax.Array) -> jax.Array:
                if not causal and S_k % block_k == 0:
                    return s
                return lax.cond(step >= unmasked, lambda: hide(s, step), lambda: s)

            def hide(s: jax.Array, step: jax.Array) -> jax.Array:
                key = plgpu.broadcasted_iota(jnp.int32, s.shape, 1, layout=layout) + step * block_k
                visible = key < S_k
                if causal:
                    visible &= key <= plgpu.broadcasted_iota(jnp.int32, s.shape, 0, layout=layout) + (first_row + shift)
                return jnp.where(visible, s, -jnp.inf)

            def softmax(s: jax.Array, m: jax.Array, l: jax.Array) -> tuple[jax.Array, ...]:  # noqa: E741
                """The numerators, the factor of earlier results, and the new maximum and sum; in units of log2."""
                m_new = lax.max(m, s.max(axis=1) * scale)
                base = jnp.where(m_new == -jnp.inf, 0.0, m_new)  # no key seen yet, or all scores are minus infinity
                alpha = jnp.exp2(m - base)
                p = jnp.exp2(s * scale - spread(base, block_k))
                return p.astype(q_gmem.dtype), alpha, m_new, l * alpha + p.sum(axis=1)

            def start() -> tuple[jax.Array, ...]:
                m = plgpu.layout_cast(jnp.full((WGMMA_M,), -jnp.inf, jnp.float32), per_row)
                l = plgpu.layout_cast(jnp.full((WGMMA_M,), 0.0, jnp.float32), per_row)  # noqa: E741
                plgpu.barrier_wait(q_full.at[warpgroup])
                plgpu.barrier_wait(k_full.at[slot(ring)])

                def scores(s_acc: Any) -> jax.Array:
                    plgpu.wgmma(s_acc, q_tile, plgpu.transpose_ref(k_smem.at[slot(ring)], (1, 0)))
                    return s_acc[...]

                s = pl.run_scoped(scores, plgpu.ACC((WGMMA_M, block_k), jnp.float32))
                plgpu.barrier_arrive(k_empty.at[slot(ring)])
                p, _, m, l = softmax(masked(s, jnp.int32(0)), m, l)  # noqa: E741
                return p, m, l

            def all_steps(o_acc: Any) -> tuple[jax.Array, ...]:
                def advance(step: jax.Array, carry: tuple[jax.Array, ...]) -> Any:
                    p, m, l = carry  # noqa: E741
                    plgpu.barrier_wait(k_full.at[slot(ring + step)])

                    def products(s_acc: Any) -> jax.Array:
                        plgpu.wgmma(s_acc, q_tile, plgpu.transpose_ref(k_smem.at[slot(ring + step)], (1, 0)))
                        plgpu.barrier_wait(v_full.at[slot(ring + step - 1)])
                        plgpu.wgmma(o_acc, p, v_smem.at[slot(ring + step - 1)])
                        return plgpu.wgmma_accumulator_load(s_acc, wait_n=1)

                    s = pl.run_scoped(products, plgpu.ACC((WGMMA_M, block_k), jnp.float32))
                    plgpu.barrier_arrive(k_empty.at[slot(ring + step)])
                    p, alpha, m, l = softmax(masked(s, step), m, l)  # noqa: E741
                    o = o_acc[...]
                    plgpu.barrier_arrive(v_empty.at[slot(ring + step - 1)])
                    o_acc[...] = o * spread(alpha, D)
                    return p, m, l

                p, m, l = lax.fori_loop(1, mine, advance, start())  # noqa: E741
                plgpu.barrier_wait(v_full.at[slot(ring + mine - 1)])
                if config.persistent:
                    plgpu.barrier_arrive(q_empty.at[warpgroup])
                plgpu.wgmma(o_acc, p, v_smem.at[slot(ring + mine - 1)])
                o = o_acc[...]
                plgpu.barrier_arrive(v_empty.at[slot(ring + mine - 1)])

                @pl.loop(mine, steps)
                def skip(step: jax.Array) -> None:
                    """Skips keys that only other consumers see; the producer waits for all consumers."""
                    plgpu.barrier_wait(k_full.at[slot(ring + step)])
                    plgpu.barrier_arrive(k_empty.at[slot(ring + step)])
                    plgpu.barrier_wait(v_full.at[slot(ring + step)])
                    plgpu.barrier_arrive(v_empty.at[slot(ring + step)])

                return o, m, l

            o, m, l = pl.run_scoped(all_steps, plgpu.ACC((WGMMA_M, D), jnp.float32))  # noqa: E741
            row = plgpu.broadcasted_iota(jnp.int32, (WGMMA_M, D), 0, layout=layout) + first_row
            inverse = 1.0 / spread(l, D)
            if causal and S_q > S_k:
                inverse = jnp.where(row + shift < 0, 0.0, inverse)  # queries that see no key
            o_tile = o_smem.at[warpgroup] if config.persistent else q_tile
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            o_tile[...] = (o * inverse).astype(q_gmem.dtype)
            row = plgpu.broadcasted_iota(jnp.int32, (WGMMA_M,), 0, layout=per_row) + first_row
            nothing = (row >= S_q) | (row + shift < 0) if causal else row >= S_q
            log_smem[warpgroup] = jnp.where(nothing, jnp.inf, m + jnp.log2(l))
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(o_tile, o_gmem.at[batch, query_head, pl.ds(first_row, WGMMA_M)])
            plgpu.copy_smem_to_gmem(log_smem.at[warpgroup], log_gmem.at[batch, query_head, pl.ds(first_row, WGMMA_M)])
            return ring + steps

        each_tile(compute_tile)
        plgpu.wait_smem_to_gmem(0)
