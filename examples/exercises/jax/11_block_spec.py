"""Exercise jax/11_block_spec: a grid of programs, each with its blocks.

out[n, m] = x[m, n], in blocks of 32 x 32. A BlockSpec has the shape of a block, and a function from the program's place
(i, j) in the grid to the place of its block, counted in blocks. Sizes that are no multiples are padded.
"""

import jax
from jax.experimental import pallas as pl

framework = "jax"
BLOCK = 32


def transpose_kernel(x_ref, out_ref):
    assert x_ref.shape == out_ref.shape == (BLOCK, BLOCK), "a block has 32 x 32 elements"
    out_ref[...] = x_ref[...].T


@jax.jit
def transpose(x):
    M, N = x.shape
    # TODO: declare `in_spec` and `out_spec`. Program (i, j) reads block (i, j) of x, and writes block (j, i) of out.
    # END
    return pl.pallas_call(
        transpose_kernel,
        grid=(pl.cdiv(M, BLOCK), pl.cdiv(N, BLOCK)),
        in_specs=[in_spec],
        out_specs=out_spec,
        out_shape=jax.ShapeDtypeStruct((N, M), x.dtype),
        interpret=True,
    )(x)
