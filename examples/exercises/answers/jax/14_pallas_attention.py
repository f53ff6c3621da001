"""Exercise jax/14_pallas_attention: attention without the matrix of scores.

out = softmax(q k^T / sqrt(D)) v; q, k and v are [S, D], and S is a multiple of BLOCK. A program has BLOCK queries, and
goes over the keys once, BLOCK at a time. The state of the loop is, for each query, the maximum so far, the sum of the
weights, and the weighted sum of v.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

framework = "jax"
BLOCK = 32


def attention_kernel(q_ref, k_ref, v_ref, out_ref):
    q = q_ref[...] / math.sqrt(q_ref.shape[1])  # [BLOCK, D]

    def step(number, state):
        m, total, acc = state  # [BLOCK, 1], [BLOCK, 1], [BLOCK, D]
        keys = pl.ds(number * BLOCK, BLOCK)
        k, v = k_ref[keys, :], v_ref[keys, :]
        scores = jnp.dot(q, k.T, precision="highest")  # [BLOCK, BLOCK]
        # TODO: include these keys in the state: the new maximum of each row, the weights exp(scores - maximum), the
        # factor by which the earlier sums shrink, and with it total and acc. Return (m, total, acc).
        larger = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        weights = jnp.exp(scores - larger)
        shrink = jnp.exp(m - larger)
        total = total * shrink + jnp.sum(weights, axis=1, keepdims=True)
        return larger, total, acc * shrink + jnp.dot(weights, v, precision="highest")
        # END

    column = jnp.zeros((BLOCK, 1), jnp.float32)
    begin = column - jnp.inf, column, jnp.zeros(q.shape, jnp.float32)
    _, total, acc = jax.lax.fori_loop(0, k_ref.shape[0] // BLOCK, step, begin)
    out_ref[...] = acc / total


@jax.jit
def attention(q, k, v):
    S, D = q.shape
    queries, whole = pl.BlockSpec((BLOCK, D), lambda i: (i, 0)), pl.BlockSpec((S, D), lambda i: (0, 0))
    return pl.pallas_call(
        attention_kernel,
        grid=(S // BLOCK,),
        in_specs=[queries, whole, whole],
        out_specs=queries,
        out_shape=jax.ShapeDtypeStruct((S, D), q.dtype),
        interpret=True,
    )(q, k, v)
