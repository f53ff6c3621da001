"""Exercise jax/05_jit: a compiled function has no values to decide on.

out[i] = x[i] if x[i] > 0 else x[i] / 10. jax.jit calls the function once, with tracers that have shapes but no values,
and compiles what it has recorded: all operations in one pass over memory. A Python `if` on a value is an error there.
"""

import jax
import jax.numpy as jnp

framework = "jax"


@jax.jit
def leaky_relu(x):
    """[N] -> [N]"""
    # TODO: return the result by jnp.where(condition, where true, where false).
    # END
