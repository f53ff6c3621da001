"""Gradients of each expert's weights by PyTorch's grouped operator, which reads the sizes on the GPU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_matmul_grad
from torch_impls._runtime.grouped import check_grouped_operator

VENDOR = "PyTorch (CUTLASS on a GPU)"


def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, E]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.

    Dtypes: bfloat16, with sums in float32; on a CPU also float32 and float16. sizes: int32. Rows of x and of dy, or
    their columns, must be contiguous and begin at multiples of 16 bytes.
    Raises ValueError for other shapes and dtypes, and for different devices; NotImplementedError for what the operator
    would compute by a loop over the experts, and for strides that it does not take.
    """
    T, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    if T * K * N == 0:
        return x.new_zeros(E, K, N)
    check_grouped_operator("grouped_matmul_grad", x=x, dy=dy)
    found: Tensor = torch._grouped_mm(x.t(), dy, offs=sizes.cumsum(0, dtype=torch.int32))
    return found.contiguous()  # rows of the result may be padded to 16 bytes
