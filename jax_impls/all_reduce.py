"""The sum over all ranks by XLA: NCCL on GPUs, gloo on CPUs."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_all_reduce

VENDOR = "XLA"


def all_reduce(x: Float[Array, N], *, group: str) -> Float[Array, N]:
    """The sum of x over the mesh axis `group`, on every device. x is one device's (N,): call this inside shard_map.

    float32, float16 or bfloat16. Raises ValueError for other shapes and dtypes.
    """
    check_all_reduce("all_reduce", x)
    return jax.lax.psum(x, group)
