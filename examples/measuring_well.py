"""Mistakes that fool a measurement, on a CPU: each line has the naive number beside the one that holds.
About ten seconds.

python examples/measuring_well.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import torch

import kernel_suite as suite
from kernel_suite.suite.core.errors import DisagreementError

CPU: dict[str, Any] = {"device": "cpu"}


def microseconds(function: Callable[..., Any], *inputs: Any, calls: int = 20) -> float:
    """The naive timer: the mean over calls, of one set of inputs, without waiting for what they started."""
    begin = perf_counter()
    for _ in range(calls):
        function(*inputs)
    return (perf_counter() - begin) / calls * 1e6


def zeros() -> str:
    """A matmul that leaves out the last quarter of K."""

    def wrong(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
        k = a.shape[1] * 3 // 4
        return a[:, :k] @ b[:k]

    a = torch.zeros(256, 256)
    naive = float((wrong(a, a) - a @ a).abs().max())
    found = suite.check(wrong, "matmul", (256, 256, 256), **CPU)
    return f"zeros               error on zeros {naive:g}; on normal numbers {found.error_ratio:,.0f} times the bound"


def remembered() -> str:
    """A matmul that returns the earlier result where the operands lie at known addresses."""
    results: dict[tuple[int, int], torch.Tensor] = {}

    def remembers(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee") -> torch.Tensor:
        key = a.data_ptr(), b.data_ptr()
        if key not in results:
            results[key] = a @ b
        return results[key].clone()

    a = torch.randn(1024, 1024)
    honest, naive = microseconds(torch.matmul, a, a), microseconds(remembers, a, a)
    try:
        verdict = f"{suite.time(remembers, 'matmul', (1024, 1024, 1024), **CPU).device_us}"
    except DisagreementError as error:
        verdict = str(error).partition("ieee")[2].split(": ")[-1]
    return f"remembered results  {naive:,.0f} us, honest {honest:,.0f} us; the suite: {verdict}"


def first_call() -> str:
    """A jitted function, whose first call compiles."""
    x = jnp.ones(1_000_000)
    naive = microseconds(lambda value: jax.jit(lambda v: jax.nn.sigmoid(v) + 1)(value).block_until_ready(), x, calls=10)
    compiled = jax.jit(lambda v: jax.nn.sigmoid(v) + 2)
    begin = perf_counter()
    compiled(x).block_until_ready()
    first = (perf_counter() - begin) * 1e6
    later = microseconds(lambda value: compiled(value).block_until_ready(), x, calls=10)
    mean = (first + 9 * later) / 10
    return (
        f"first call          mean of ten calls {mean:,.0f} us, of the nine later ones {later:,.0f} us; "
        f"compiled in every call {naive:,.0f} us"
    )


def no_wait() -> str:
    """JAX returns before the result is ready, on a CPU too."""
    product = jax.jit(jnp.matmul)
    a = jnp.ones((1024, 1024))
    product(a, a).block_until_ready()
    naive = microseconds(product, a, a, calls=1)
    right = microseconds(lambda *inputs: product(*inputs).block_until_ready(), a, a, calls=10)
    return f"no waiting          {naive:,.0f} us until the call returned, {right:,.0f} us until its result was there"


def warm_cache() -> str:
    """A sum of 4 MB that the calls before have left in the cache."""

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    times = [suite.time(add, "vector_add", (500_000,), cache=cache, **CPU).device_us for cache in ("warm", "cold")]
    return f"warm cache          {times[0]:,.0f} us warm, {times[1]:,.0f} us cold"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for example in (zeros, remembered, first_call, no_wait, warm_cache):
        print(example())
