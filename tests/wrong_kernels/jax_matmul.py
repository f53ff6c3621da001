"""C = A B in JAX: sums over blocks of K, with mistakes in precision, padding and axes."""

import jax
import jax.numpy as jnp
from jax import lax

from wrong_kernels import Wrong

MISTAKES = {
    "factors_in_bfloat16": Wrong("float32 factors are rounded to bfloat16", "value", (64, 64, 64)),
    "sums_in_bfloat16": Wrong("the sum over blocks of K is kept in bfloat16", "value", (64, 64, 512), "bfloat16"),
    "padded_with_the_edge": Wrong(
        "K is filled up to whole blocks with the last column, not with zeros", "value", (64, 64, 100)
    ),
    "second_axis_summed": Wrong("einsum over the wrong axis of B", "value", (64, 64, 64)),
    "result_reshaped": Wrong("reshaped to (N, M)", "shape", (64, 32, 64)),
}
BLOCK = 64


def make(mistake: str):
    @jax.jit
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        mode = "edge" if mistake == "padded_with_the_edge" else "constant"
        beyond = (0, -a.shape[1] % BLOCK)
        a, b = jnp.pad(a, ((0, 0), beyond), mode=mode), jnp.pad(b, (beyond, (0, 0)), mode=mode)
        if mistake == "factors_in_bfloat16":
            a, b = (lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7) for x in (a, b))
        c = jnp.zeros((a.shape[0], b.shape[1]), jnp.float32)
        for start in range(0, a.shape[1], BLOCK):
            block = slice(start, start + BLOCK)
            axes = "ik,jk->ij" if mistake == "second_axis_summed" else "ik,kj->ij"
            factors = (a[:, block], b[block])
            c += jnp.einsum(axes, *factors, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
            if mistake == "sums_in_bfloat16":
                c = lax.reduce_precision(c, exponent_bits=8, mantissa_bits=7)
        c = c.astype(a.dtype)
        return c.reshape(c.shape[::-1]) if mistake == "result_reshaped" else c

    def matmul(a: jax.Array, b: jax.Array, *, precision: str = "ieee") -> jax.Array:
        return product(a, b)

    return matmul
