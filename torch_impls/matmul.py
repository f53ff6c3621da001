"""Matrix product by torch.matmul: cuBLAS on a GPU, oneDNN and MKL on a CPU; float8 by torch._scaled_mm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (cuBLAS on a GPU)"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16 with any strides; K = 0 gives zeros.

    float8_e4m3fn: scale_a * scale_b * a b in bfloat16. With "fast" the tensor cores compute the whole sums; with
    "promoted" cuBLASLt adds their sums in float32 at intervals of K. On a GPU a must be row-major and b column-major, K
    and N multiples of 16, and both aligned to 16 bytes.

    Precision: see `with_precision`.

    Raises ValueError for other shapes, dtypes, scales and precisions and for different devices, NotImplementedError
    for "tf32" on a CPU and for other float8 matrices on a GPU.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True, float64=True)
    if scale_a is not None:
        return _matmul_float8(a, b, scale_a, scale_b, fast=precision == "fast")
    return with_precision(precision, torch.matmul, a, b)


def _matmul_float8(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, fast: bool) -> Tensor:
    (M, K), N = a.shape, b.shape[1]
    if 0 in (M, N, K):
        return torch.zeros((M, N), dtype=torch.bfloat16, device=a.device)
    if a.is_cuda:
        if K % 16 != 0 or N % 16 != 0:
            raise NotImplementedError(f"matmul: K and N of float8 must be multiples of 16; got {K} and {N}")
        for name, operand, rows in (("a", a, a), ("b", b, b.mT)):
            if rows.stride(1) != 1 or rows.stride(0) < K or rows.stride(0) % 16 != 0 or rows.data_ptr() % 16 != 0:
                raise NotImplementedError(
                    f"matmul: {name} of float8 must have K contiguous, all else at multiples of 16 bytes; "
                    f"got strides {operand.stride()} at address {operand.data_ptr():#x}"
                )
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)
