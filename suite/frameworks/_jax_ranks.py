"""JAX over several processes: they are joined by jax.distributed, and each has one device of a mesh of one axis."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from functools import cache, partial
from typing import Any

AXIS = "ranks"
HOST = "127.0.0.1"
DELAY_SIZE, PRODUCT_US = 2048, 25.0
"""Size of the gate's products; a little less than the time of one on an H100, which is about 30 us."""


@cache
def mesh() -> Any:
    """The mesh of the devices of all ranks. The first call, which all ranks make together, joins the processes."""
    import jax
    import numpy as np
    import torch
    import torch.distributed as dist

    with socket.socket() as free:
        free.bind((HOST, 0))
        port = [free.getsockname()[1]]
    dist.broadcast_object_list(port, 0)
    on_gpu = torch.cuda.is_available() and dist.get_backend() != "gloo"
    local = [torch.cuda.current_device()] if on_gpu else None
    jax.distributed.initialize(f"{HOST}:{port[0]}", dist.get_world_size(), dist.get_rank(), local_device_ids=local)
    _keep_programs()
    return jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))


def _keep_programs() -> None:
    """Let this rank write its programs to the compilation cache.

    JAX lets only the first process write, but the keys name the process: all others would compile in every run.
    """
    from jax._src import compiler, distributed

    if (write := getattr(compiler, "_cache_write", None)) is None:  # another version of JAX
        return

    def write_as_first(*args: Any) -> None:
        state, rank = distributed.global_state, distributed.global_state.process_id
        state.process_id = 0
        try:
            write(*args)
        finally:
            state.process_id = rank

    compiler._cache_write = write_as_first


def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of this rank's arrays that runs `function(*arrays, group=AXIS)` on all ranks, jitted."""
    import jax

    mesh()  # before JAX is used for anything else

    @cache
    def program(names: tuple[tuple[str, Any], ...]) -> Any:
        spec = jax.sharding.PartitionSpec(AXIS)
        body = partial(function, group=AXIS, **dict(names))
        return jax.jit(jax.shard_map(body, mesh=mesh(), in_specs=spec, out_specs=spec, check_vma=False))

    def call(*arrays: Any, **arguments: Any) -> Any:
        results = program(tuple(arguments.items()))(*map(_all_shards, arrays))
        return jax.tree.map(lambda each: each.addressable_data(0), results)

    return call


def gate(delay_us: float) -> Callable[[], object]:
    """A function that queues products and then a sum of one number of each rank.

    The products take `delay_us`, in which the host queues the call.
    """
    import jax
    import jax.numpy as jnp

    products = math.ceil(delay_us / PRODUCT_US)

    def delayed(x: Any, *, group: str) -> Any:
        product = x
        for _ in range(products):
            product = product @ x
        return jax.lax.psum(product[:1, 0], group)

    add = mapped(delayed)
    x = jax.device_put(jnp.zeros((DELAY_SIZE, DELAY_SIZE), jnp.bfloat16), jax.local_devices()[0])
    return lambda: add(x)


def _all_shards(array: Any) -> Any:
    """The array that joins the arrays of all ranks along the first axis. Copies nothing."""
    import jax

    shape = (array.shape[0] * mesh().size, *array.shape[1:])
    sharding = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec(AXIS))
    return jax.make_array_from_single_device_arrays(shape, sharding, [array])
