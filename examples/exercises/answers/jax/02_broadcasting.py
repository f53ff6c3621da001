"""Exercise jax/02_broadcasting: axes of length 1 stretch.

out[m, n] = sum over d of (a[m, d] - b[n, d])^2; a is [M, D], b is [N, D].
"""

import jax.numpy as jnp

framework = "jax"


def distances(a, b):
    # TODO: declare `differences`, the array [M, N, D] of a[m, d] - b[n, d]. a[:, None, :] is [M, 1, D], and an axis of
    # length 1 stretches to the length of the other operand's.
    differences = a[:, None, :] - b[None, :, :]
    # END
    return jnp.sum(differences**2, axis=2)
