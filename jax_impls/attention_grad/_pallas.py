"""The kernels of pallas.py: one keeps keys and values and steps over the queries, the other does the reverse.

In each, one warpgroup loads by TMA into a ring of stages, and two multiply. Both kernels recompute the probabilities
from the logarithms that `forward` has stored, so that every sum has a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from jax_impls._runtime.mosaic import plgpu
from jax_impls.attention._pallas import LOG2E, WGMMA_M, tile_of, tiled, whole_blocks

CONSUMERS = 2
ROWS = CONSUMERS * WGMMA_M  # keys, or queries, that a block keeps
BLOCK = 64  # queries, or keys, per step
LAYOUT = plgpu.Layout.WGMMA


def backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    o: jax.Array,
    log_sums: jax.Array,
    do: jax.Array,
    causal: bool,
    sm_scale: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(dq, dk, dv) from the output and the logarithms of `forward`; D is 64 or 128."""
    (B, H, S_q, D), (_, H_kv, S_k, _) = q.shape, k.shape
    delta = jnp.sum(o.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
    delta = jnp.pad(delta, ((0, 0), (0, 0), (0, log_sums.shape[2] - S_q)))
    q, k, v, do = (whole_blocks(x) for x in (q, k, v, do))
    kept, stages = tiled((CONSUMERS, WGMMA_M, D), q.dtype), 256 // D + 1
    ring = tiled((stages, BLOCK, D), q.dtype)
    vectors = plgpu.SMEM((stages, BLOCK), jnp.float32)
    rows = plgpu.SMEM((CONSUMERS, WGMMA_M), jnp.float32)

    def launch(
        body: Callable[..., None], tiles: int, out: Any, copies: tuple[int, int], scratch: Any, name: str
    ) -> Any:
        """Launches a kernel. copies: arrivals at the barrier of a consumer's kept operands, and at that of a stage."""
        return plgpu.kernel(
            partial(body, lengths=(S_q, S_k), causal=causal, sm_scale=sm_scale),
            out_type=out,
            scratch_types=scratch
            | {
                "kept_full": plgpu.Barrier(num_arrivals=copies[0], num_barriers=CONSUMERS),
                "full": plgpu.Barrier(num_arrivals=copies[1], num_barriers=stages),
                "empty": plgpu.Barrier(num_arrivals=CONSUMERS, num_barriers=stages),
            },
            grid=(tiles,),
            grid_names=("tile",),
            num_threads=CONSUMERS + 1,
            thread_name="warpgroup",
            kernel_name=name,
            compiler_params=plgpu.CompilerParams(
                approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Warpgroup
            ),
        )(q, k, v, do, log_sums, delta)

    dk, dv = launch(
        _keys_kernel,
        B * H_kv * pl.cdiv(S_k, ROWS),
        (jax.ShapeDtypeStruct(k.shape, k.dtype), jax.ShapeDtypeStruct(v.shape, v.dtype)),
        (2, 4),
        {"k_smem": kept, "v_smem": kept, "q_smem": ring, "do_smem": ring, "log_smem": vectors, "delta_smem": vectors},
        "attention_grad_keys_pallas",
    )
    dq = launch(
        _queries_kernel,
        B * H * pl.cdiv(S_q, ROWS),
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        (4, 2),
        {"q_smem": kept, "do_smem": kept, "log_smem": rows, "delta_smem": rows, "k_smem": ring, "v_smem": ring},
        "attention_grad_queries_pallas",
    )
    return dq[:, :, :S_q], dk[:, :, :S_k], dv[:, :, :S_k]


def _exponentials(s: jax.Array, logs: jax.Array, axis: int, scale: float) -> jax.Array:
    """Probabilities from scores and the logarithms of the rows along `axis`."""
    return jnp.exp2(s * (scale * LOG2E) - lax.broadcast_in_dim(logs, s.shape, [axis]))


def _transposed(ref: Any) -> Any:
    return plgpu.transpose_ref(ref, (1, 0))


def _keys_kernel(
    q_gmem: Any, k_gmem: Any, v_gmem: Any, do_gmem: Any, log_gmem: Any, delta_gmem: Any, dk_gmem: Any, dv_gmem: Any,
    k_smem: Any, v_smem: Any, q_smem: Any, do_smem: Any, log_smem: Any, delta_smem: Any,
    kept_full: Any, full: Any, empty: Any, lengths: tuple[int, int], causal: bool, sm_scale: float,
) -> None:  # fmt: skip
    """Computes dk and dv of CONSUMERS * WGMMA_M keys, over all queries of a group of heads.

    Scores are transposed, (keys, queries), so that they are left operands in registers.
    """
    (_, H, _, D), (B, H_kv, _, _), (S_q, S_k) = q_gmem.shape, k_gmem.shape, lengths
    stages, group, shift = q_smem.shape[0], H // H_kv, S_k - S_q
    head, reverse = tile_of(lax.axis_index("tile"), B * H_kv, pl.cdiv(S_k, ROWS), 1)
    tile = pl.cdiv(S_k, ROWS) - 1 - reverse  # the first keys come first, since the most queries see them
    batch, key_head = head // H_kv, head % H_kv
    warpgroup = lax.axis_index("warpgroup")
    first_step = lax.max(tile * ROWS - shift, jnp.int32(0)) // BLOCK if causal else jnp.int32(0)
    per_head = pl.cdiv(S_q, BLOCK) - first_step
    steps = per_head * group

    def place(step: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Stage, query head and first query of a step."""
        query_head = key_head * group + step // per_head
        return lax.rem(step, jnp.int32(stages)), query_head, (first_step + step % per_head) * BLOCK

    @pl.when(warpgroup == CONSUMERS)
    def produce() -> None:
        plgpu.set_max_registers(24, action="decrease")
        for consumer in range(CONSUMERS):
            keys = pl.ds(tile * ROWS + consumer * WGMMA_M, WGMMA_M)
            for gmem, smem in ((k_gmem, k_smem), (v_gmem, v_smem)):
                plgpu.copy_gmem_to_smem(gmem.at[batch, key_head, keys], smem.at[consumer], kept_full.at[consumer])

        @pl.loop(0, steps)
        def load(step: jax.Array) -> None:
            stage, query_head, first_row = place(step)

            @pl.when(step >= stages)
            def wait_until_read() -> None:
                plgpu.barrier_wait(empty.at[stage])

            at = (batch, query_head, pl.ds(first_row, BLOCK))
            pairs = ((q_gmem, q_smem), (do_gmem, do_smem), (log_gmem, log_smem), (delta_gmem, delta_smem))
            for gmem, smem in pairs:
                plgpu.copy_gmem_to_smem(gmem.at[at], smem.at[stage], full.at[stage])

        @pl.loop(lax.max(steps - stages, jnp.int32(0)), steps)
        def wait_until_all_read(step: jax.Array) -> None:
            plgpu.barrier_wait(empty.at[lax.rem(step, jnp.int32(stages))])

    @pl.when(warpgroup < CONSUMERS)
    def consume() -> None:
        plgpu.set_max_registers(240, action="increase")
        first_key = tile * ROWS + warpgroup * WGMMA_M
        k_tile, v_tile = k_smem.at[warpgroup], v_smem.at[warpgroup]
        plgpu.barrier_wait(kept_full.at[warpgroup])

        def hide(s: jax.Array, first_row: jax.Array) -> jax.Array:
            """Sets s to minus infinity where a query does not exist or does not see the key. Few tiles need it."""

            def hidden() -> jax.Array:
                row = plgpu.broadcasted_iota(jnp.int32, s.shape, 1, layout=LAYOUT) + first_row
                seen = row < S_q
                if causal:
                    seen &= plgpu.broadcasted_iota(jnp.int32, s.shape, 0, layout=LAYOUT) + first_key <= row + shift
                return jnp.where(seen, s, -jnp.inf)

            ragged = first_row + BLOCK > S_q
            if causal:
                ragged |= first_row + shift < first_key + WGMMA_M - 1
            return lax.cond(ragged, hidden, lambda: s)

        def all_steps(dk_acc: Any, dv_acc: Any) -> tuple[jax.Array, jax.Array]:
            @pl.loop(0, steps)
            def advance(step: jax.Array) -> None:
                stage, _, first_row = place(step)
                plgpu.barrier_wait(full.at[stage])

                def products(s_acc: Any, dp_acc: Any) -> tuple[jax.Array, jax.Array]:
                    plgpu.wgmma(s_acc, k_tile, _transposed(q_smem.at[stage]))
                    plgpu.wgmma(dp_acc, v_tile, _transposed(do_smem.at[stage]))
                    s = plgpu.wgmma_accumulator_load(s_acc, wait_n=1)
                    logs = plgpu.layout_cast(log_smem[stage], LAYOUT.reduce(0))
                    p = _exponentials(hide(s, first_row), logs, 1, sm_scale)
                    return p, dp_acc[...]

                p, dp = pl.run_scoped(products, *[plgpu.ACC((WGMMA_M, BLOCK), jnp.float32)] * 2)
                deltas = plgpu.layout_cast(delta_smem[stage], LAYOUT.reduce(0))
                ds = p * (dp - lax.broadcast_in_dim(deltas, p.shape, [1]))
                plgpu.wgmma(dv_acc, p.astype(q_gmem.dtype), do_smem.at[stage])
                plgpu.wgmma(dk_acc, ds.astype(q_gmem.dtype), q_smem.at[stage])
                plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(empty.at[stage])

            return dk_acc[...], dv_acc[...]

        dk, dv = pl.run_scoped(all_steps, *[plgpu.ACC((WGMMA_M, D), jnp.float32)] * 2)
        k_tile[...] = (dk * sm_scale).astype(dk_gmem.dtype)
        v_tile[...] = dv.astype(dv_gmem.dtype)
        plgpu.commit_smem()
        at = (batch, key_head, pl.ds(first_key, WGMMA_M))
        plgpu.copy_smem_to_gmem(k_tile, dk_gmem.at[at])
        plgpu.copy_smem_to_gmem(v_tile, dv_gmem.at[at])
        plgpu.wait_smem_to_gmem(0)


def _queries_kernel(
    q_gmem: Any, k_gmem: Any, v_gmem: Any, do_gmem: Any, log_gmem: Any, delta_gmem: Any, dq_gmem: Any,
    q_smem: Any, do_smem: Any, log_smem: Any, delta_smem: Any, k_smem: Any, v_smem: Any,
    kept_full: Any, full: Any, empty: Any, lengths: tuple[int, int], causal: bool, sm_scale: float,
) -> None:  # fmt: skip
    """Computes dq of CONSUMERS * WGMMA_M queries, over all keys that they see."""
    (B, H, _, D), H_kv, (S_q, S_k) = q_gmem.shape, k_gmem.shape[1], lengths
    stages, shift = k_smem.shape[0], S_k - S_q
    head, tile = tile_of(lax.axis_index("tile"), B * H, pl.cdiv(S_q, ROWS), 1)
    batch, query_head = head // H, head % H
    warpgroup = lax.axis_index("warpgroup")
    seen = lax.clamp(jnp.int32(0), (tile + 1) * ROWS + shift, jnp.int32(S_k)) if causal else jnp.int32(S_k)
    steps = pl.cdiv(seen, BLOCK)

    def stage_of(step: jax.Array) -> jax.Array:
        return lax.rem(step, jnp.int32(stages))

    @pl.when(warpgroup == CONSUMERS)
    def produce() -> None:
        plgpu.set_max_registers(24, action="decrease")
        for consumer in range(CONSUMERS):
            at = (batch, query_head, pl.ds(tile * ROWS + consumer * WGMMA_M, WGMMA_M))
            pairs = ((q_gmem, q_smem), (do_gmem, do_smem), (log_gmem, log_smem), (delta_gmem, delta_smem))
            for gmem, smem in pairs:
                plgpu.copy_gmem_to_smem(gmem.at[at], smem.at[consumer], kept_full.at[consumer])

        @pl.loop(0, steps)
        def load(step: jax.Array) -> None:
            stage = stage_of(step)

            @pl.when(step >= stages)
            def wait_until_read() -> None:
                plgpu.barrier_wait(empty.at[stage])

            at = (batch, query_head // (H // H_kv), pl.ds(step * BLOCK, BLOCK))
            for gmem, smem in ((k_gmem, k_smem), (v_gmem, v_smem)):
                plgpu.copy_gmem_to_smem(gmem.at[at], smem.at[stage], full.at[stage])

        @pl.loop(lax.max(steps - stages, jnp.int32(0)), steps)
        def wait_until_all_read(step: jax.Array) -> None:
            plgpu.barrier_wait(empty.at[stage_of(step)])

    @pl.when(warpgroup < CONSUMERS)
    def consume() -> None:
        plgpu.set_max_registers(240, action="increase")
        first_row = tile * ROWS + warpgroup * WGMMA_M
        q_tile, do_tile = q_smem.at[warpgroup], do_smem.at[warpgroup]
        plgpu.barrier_wait(kept_full.at[warpgroup])
        logs = plgpu.layout_cast(log_smem[warpgroup], LAYOUT.reduce(1))
        deltas = plgpu.layout_cast(delta_smem[warpgroup], LAYOUT.reduce(1))

        def hide(s: jax.Array, first_key: jax.Array) -> jax.Array:
            """Sets s to minus infinity where a key does not exist or is not seen. Few tiles need it."""

            def hidden() -> jax.Array:
                key = plgpu.broadcasted_iota(jnp.int32, s.shape, 1, layout=LAYOUT) + first_key
                seen = key < S_k
                if causal:
                    row = plgpu.broadcasted_iota(jnp.int32, s.shape, 0, layout=LAYOUT) + first_row
                    seen &= key <= row + shift
                return jnp.where(seen, s, -jnp.inf)

            ragged = first_key + BLOCK > S_k
            if causal:
                ragged |= first_row + shift < first_key + BLOCK - 1
            return lax.cond(ragged, hidden, lambda: s)

        def all_steps(dq_acc: Any) -> jax.Array:
            @pl.loop(0, steps)
            def advance(step: jax.Array) -> None:
                stage, first_key = stage_of(step), step * BLOCK
                plgpu.barrier_wait(full.at[stage])

                def products(s_acc: Any, dp_acc: Any) -> tuple[jax.Array, jax.Array]:
                    plgpu.wgmma(s_acc, q_tile, _transposed(k_smem.at[stage]))
                    plgpu.wgmma(dp_acc, do_tile, _transposed(v_smem.at[stage]))
                    s = plgpu.wgmma_accumulator_load(s_acc, wait_n=1)
                    p = _exponentials(hide(s, first_key), logs, 0, sm_scale)
                    return p, dp_acc[...]

                p, dp = pl.run_scoped(products, *[plgpu.ACC((WGMMA_M, BLOCK), jnp.float32)] * 2)
                ds = p * (dp - lax.broadcast_in_dim(deltas, p.shape, [0]))
                plgpu.wgmma(dq_acc, ds.astype(q_gmem.dtype), k_smem.at[stage])
                plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(empty.at[stage])

            return dq_acc[...]

        dq = pl.run_scoped(all_steps, plgpu.ACC((WGMMA_M, D), jnp.float32))
        q_tile[...] = (dq * sm_scale).astype(dq_gmem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(q_tile, dq_gmem.at[batch, query_head, pl.ds(first_row, WGMMA_M)])
        plgpu.wait_smem_to_gmem(0)
