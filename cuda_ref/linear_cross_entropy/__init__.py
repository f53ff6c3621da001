"""The cross entropy of a linear layer's logits with targets, and its gradients, in CUDA: blocks of columns."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.losses import check_linear_cross_entropy

DETERMINISTIC = True
LOGITS = 2**23  # per block of columns; its arrays are small beside the weight of a large vocabulary

Loss = Float[Tensor, "T"]
Features = Float[Tensor, "T H"]
Weight = Float[Tensor, "V H"]
Target = Int64[Tensor, "T"]


@kept
def linear_cross_entropy(
    x: Features, weight: Weight, target: Target, *, ignore_index: int = -100
) -> tuple[Loss, Features, Weight]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    Shapes: x (T, H), weight (V, H), target (T,), any strides; the results are contiguous.
    Dtypes: float32, float16, bfloat16; target int64. Products and sums in float32; logits, their gradients and the
    results are rounded. The loss is float32.
    Memory: 4 T H bytes for the sums of dx, and a block of about 2^23 logits.
    A target outside [0, V) gives NaN in its row of loss and dx, and in dweight.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if a launch fails.
    Source: see linear_cross_entropy.cu.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    if T == 0 or V == 0:
        return x.new_zeros(T, dtype=torch.float32), x.new_zeros(T, H), x.new_zeros(V, H)
    columns = min(V, max(256, LOGITS // T))
    loss, sums, total = (x.new_empty(size, dtype=torch.float32) for size in (T, 3 * T + 1, max(T * H, 1)))
    logits, dx, dweight = x.new_empty(T * columns), x.new_empty(T, H), x.new_empty(V, H)
    build.launch(
        "linear_cross_entropy/linear_cross_entropy", "linear_cross_entropy", x.device,
        x, weight, target, logits, total, sums, loss, dx, dweight, T, V, H, columns, *x.stride(), *weight.stride(),
        target.stride(0), ignore_index, build.DTYPES[x.dtype],
    )  # fmt: skip
    return loss, dx, dweight
