"""Lets JAX return before its result is ready, and replaces the functions that wait for it."""

import jax
import jax.numpy as jnp

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"
framework = "jax"

jax.block_until_ready = lambda x: x
product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))


def matmul(a, b, *, precision="ieee"):
    return product(a, b)
