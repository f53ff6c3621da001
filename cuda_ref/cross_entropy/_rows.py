"""The call that the kernels of cross entropy share."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from cuda_ref import build

Logits = Float[Tensor, "T V"]
Loss = Float[Tensor, "T"]
Target = Int64[Tensor, "T"]


def losses(
    source: str, logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, *shared: int
) -> tuple[Tensor, Tensor]:
    """Calls the function of cross_entropy/<source>.cu that is named for the file.

    shared: the division of a row among blocks, for the kernel in clusters.
    """
    T, V = logits.shape
    if logits.numel() == 0:
        return logits.new_zeros(T, dtype=torch.float32), logits.new_empty(T, V)
    loss, share = (logits.new_empty(size, dtype=torch.float32) for size in (T, 1))
    dlogits = logits.new_empty(T, V)
    function = source if source == "cross_entropy" else f"cross_entropy_{source}"
    build.launch(
        f"cross_entropy/{source}", function, logits.device,
        logits, target, share, loss, dlogits, T, V, *logits.stride(), target.stride(0), ignore_index, label_smoothing,
        *shared, build.DTYPES[logits.dtype],
    )  # fmt: skip
    return loss, dlogits
