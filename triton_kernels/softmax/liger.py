"""Softmax by liger-kernel: one Triton program holds a row in registers."""

from jaxtyping import Float
from liger_kernel.ops import LigerSoftmaxFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_rows

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter truncates stores in bfloat16
LONGEST = 65536


def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i] = exp(x[i] - max(x[i])) / sum(exp(x[i] - max(x[i]))).

    The kernel computes in the dtype of x. Raises ValueError for other shapes and dtypes, NotImplementedError for rows
    that the library refuses.
    """
    check_rows("softmax", x)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"softmax: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = LigerSoftmaxFunction.apply(x)
    return result
