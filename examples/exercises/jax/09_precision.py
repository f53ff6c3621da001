"""Exercise jax/09_precision: the type of a product's sums.

out = a b; a and b are float16, out is float32. The product of two float16 arrays is rounded to float16, unless another
type is preferred.
"""

import jax.numpy as jnp

framework = "jax"


def matmul_half(a, b):
    """[M, K], [K, N] -> [M, N]"""
    # TODO: return the product in float32, without converting a and b: jnp.matmul has preferred_element_type=.
    # END
