"""The gradients of a layer with the batch split over the ranks, by XLA: the gradients, then their sums."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_linear
from jax_impls.linear_sigmoid_grad import linear_sigmoid_grad

VENDOR = "XLA"


def data_parallel_grad(
    x: Float[Array, "M K"],
    weight: Float[Array, "N K"],
    bias: Float[Array, N],
    dy: Float[Array, "M N"],
    *,
    group: str,
    precision: str = "ieee",
) -> tuple[Float[Array, "M K"], Float[Array, "N K"], Float[Array, N]]:
    """(dx, dweight, dbias) of `linear_sigmoid_grad`, the last two summed along the mesh axis `group`.

    x and dy are one device's rows; weight and bias are the same on all. Call this inside shard_map; XLA's scheduler
    decides what runs during the sums. float32, float16 or bfloat16.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" without a GPU and for an
    empty x or weight: shard_map cannot compile a function that ignores all its operands.
    """
    check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)
    if x.size == 0 or weight.size == 0:
        raise NotImplementedError("data_parallel_grad: shard_map cannot compile an empty product")
    dx, dweight, dbias = linear_sigmoid_grad(x, weight, bias, dy, precision=precision)
    return dx, *jax.lax.psum((dweight, dbias), group)
