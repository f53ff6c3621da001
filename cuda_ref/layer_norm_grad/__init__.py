"""The gradients of layer normalization in CUDA, the plain kernel: a warp per row, then a thread per part of a
column."""

from math import isqrt

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm_pair
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]
Vector = Float[Tensor, "N"]


@kept
def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x.

    Shapes: x and dy (M, N), weight (N,), any strides; the outputs are contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. Sums over rows have about sqrt(M) parts.
    Tail: the lanes of a warp take every 32nd column up to N. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if a launch fails.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    M, N = x.shape
    if x.numel() == 0:
        return x.new_empty(M, N), weight.new_zeros(N), weight.new_zeros(N)
    dx, dweight, dbias = x.new_empty(M, N), weight.new_empty(N), weight.new_empty(N)
    parts = isqrt(M - 1) + 1
    statistics, partial = (torch.empty(2 * size, dtype=torch.float32, device=x.device) for size in (M, parts * N))
    build.launch(
        "layer_norm_grad/layer_norm_grad", "layer_norm_grad", x.device,
        x, weight.contiguous(), dy, dx, dweight, dbias, statistics, partial, M, N, *x.stride(), *dy.stride(), eps,
        parts, build.DTYPES[x.dtype],
    )  # fmt: skip
    return dx, dweight, dbias
