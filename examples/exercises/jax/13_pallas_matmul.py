"""Exercise jax/13_pallas_matmul: a tile of a product, step by step along K.

out = a b, in blocks of 16 x 16; all sizes are multiples of 16. The last axis of the grid runs fastest, and all of its
programs get the same block of out, which therefore keeps the sum.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

framework = "jax"
BLOCK = 16


def matmul_kernel(a_ref, b_ref, out_ref):
    """Each reference is to [BLOCK, BLOCK]."""

    # TODO: set the block of out to zeros in the first step only, by a function under @pl.when(pl.program_id(2) == 0).
    # Then add the product of the blocks of a and b (jnp.dot with precision="highest").
    # END


@jax.jit
def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    return pl.pallas_call(
        matmul_kernel,
        grid=(M // BLOCK, N // BLOCK, K // BLOCK),
        in_specs=[
            pl.BlockSpec((BLOCK, BLOCK), lambda m, n, k: (m, k)),
            pl.BlockSpec((BLOCK, BLOCK), lambda m, n, k: (k, n)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda m, n, k: (m, n)),
        out_shape=jax.ShapeDtypeStruct((M, N), a.dtype),
        interpret=True,
    )(a, b)
