"""Exercise jax/06_vmap: a function of one element becomes one of a batch.

out[b] = a[b] x[b]; a is [B, M, N], x is [B, N].
"""

import jax

framework = "jax"


def matvec(a, x):
    """[M, N], [N] -> [M]"""
    return a @ x


def batched_matvec(a, x):
    """[B, M, N], [B, N] -> [B, M]"""
    # TODO: return the results of matvec for the whole batch, without a loop: jax.vmap(matvec) is a function of arrays
    # with one more axis in front.
    return jax.vmap(matvec)(a, x)
    # END
