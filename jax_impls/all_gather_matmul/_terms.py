"""A case that shard_map does not compile."""

from __future__ import annotations

from jaxtyping import Array, Float


def check_terms(x: Float[Array, "M K"]) -> None:
    """Raises NotImplementedError for K = 0: shard_map cannot compile a function that ignores all its operands."""
    if x.shape[1] == 0:
        raise NotImplementedError("all_gather_matmul: shard_map cannot compile a product with K=0")
