"""Products of each expert's rows with its weights by PyTorch's grouped operator, which reads the sizes on the GPU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_matmul
from torch_impls._runtime.grouped import check_grouped_operator

VENDOR = "PyTorch (CUTLASS on a GPU)"


def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, E]
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.

    Dtypes: bfloat16, with sums in float32; on a CPU also float32 and float16. sizes: int32. On a GPU rows of x and of
    each weight, or their columns, must be contiguous and begin at multiples of 16 bytes.
    Raises ValueError for other shapes and dtypes, and for different devices; NotImplementedError for what the operator
    would compute by a loop over the experts, and for strides that it does not take.
    """
    T, _, K, N = check_grouped_matmul(x, weight, sizes)
    if T * K * N == 0:
        return x.new_zeros(T, N)
    check_grouped_operator("grouped_matmul", x=x, weight=weight)
    found: Tensor = torch._grouped_mm(x, weight, offs=sizes.cumsum(0, dtype=torch.int32))
    return found.contiguous()  # rows of the result may be padded to 16 bytes
