"""The sum of what the ranks sent to this one: the launch of _add.cu."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build


def add_parts(parts: Float[Tensor, "ranks ..."], out: Float[Tensor, "..."]) -> None:
    """out = the sum of the parts in float32, in their order, rounded once. Each begins at a multiple of 16 bytes."""
    if out.numel() > 0:
        build.launch(
            "all_reduce/_add", "add_parts", parts.device,
            parts, out, out.numel(), parts.stride(0), parts.shape[0], build.DTYPES[parts.dtype],
        )  # fmt: skip
