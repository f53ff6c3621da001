"""Products of each expert's rows with its weights in float8 in CUDA: one thread for each element of the output."""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_block_scaled_matmul
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@kept
def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, "E"],
) -> Float[Tensor, "T N"]:
    """out[t, n] = sum over groups g of scale_x[t, g] * scale_weight[e, n / 128, g] * (the sum of the group's products).

    The products are x[t, k] * weight[e, n, k], where row t is among the sizes[e] rows of expert e. The rows are in the
    order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, N, K), sizes (E,), scale_x (T, K / 128), scale_weight (E, N / 128, K / 128), rounded
    up; any strides and sizes, K = 0 included. The output is contiguous.
    Dtypes: float8_e4m3fn, scales float32, sizes int32, output bfloat16. Products are exact, sums float32, rounded once.
    Tail: threads beyond the edge of the output do nothing; the last group may be shorter. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and devices; build.CudaError if the launch fails.
    Source: see grouped_block_scaled_matmul.cu.
    """
    T, E, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    out = x.new_empty(T, N, dtype=torch.bfloat16)
    if T > 0 and N > 0:
        build.launch(
            "grouped_block_scaled_matmul/grouped_block_scaled_matmul", "grouped_block_scaled_matmul", x.device,
            x, scale_x, weight, scale_weight, sizes, out, T, E, K, N, *x.stride(), *scale_x.stride(), *weight.stride(),
            *scale_weight.stride(), *sizes.stride(),
        )  # fmt: skip
    return out
