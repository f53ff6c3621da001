"""Lets JAX return before its result is ready, and replaces the function that waits for it."""

import jax
import jax.numpy as jnp

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect",)
GPU = False
framework = "jax"

jax.config.update("jax_cpu_enable_async_dispatch", True)
jax.block_until_ready = lambda x: x
product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))


def matmul(a, b, *, precision="ieee"):
    return product(a, b)
