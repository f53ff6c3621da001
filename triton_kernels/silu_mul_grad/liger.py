"""The gradients of a gated linear unit's product by liger-kernel: a Triton program per row, which works in place."""

from liger_kernel.ops.geglu import geglu_backward
from liger_kernel.ops.swiglu import swiglu_backward
from torch import Tensor, contiguous_format, float32

from triton_kernels._runtime.contract import check_gated
from triton_kernels.silu_mul_grad import Matrix

PEER = "liger-kernel"
REQUIRES = "cuda"
LONGEST = 65536


def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    The library overwrites a and b, so both are copied first. Raises ValueError for other shapes and dtypes,
    NotImplementedError for rows that it refuses, and for gelu in 16 bits, which it rounds before db.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    if activation != "silu" and a.dtype != float32:
        raise NotImplementedError("silu_mul_grad: in 16 bits liger-kernel rounds gelu(a) before the product")
    if a.shape[1] > LONGEST:
        raise NotImplementedError(f"silu_mul_grad: liger-kernel takes rows of at most {LONGEST}; got {a.shape[1]}")
    if a.numel() == 0:
        return a.new_empty(a.shape), b.new_empty(b.shape)
    a, b = (each.clone(memory_format=contiguous_format) for each in (a, b))
    backward = swiglu_backward if activation == "silu" else geglu_backward
    da, db = backward(a, b, dy.contiguous())
    both: tuple[Tensor, Tensor] = (da, db)
    return both
