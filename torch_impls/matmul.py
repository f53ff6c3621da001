"""Matrix product by torch.matmul: cuBLAS on a GPU, oneDNN and MKL on a CPU."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

VENDOR = "PyTorch (cuBLAS on a GPU)"

REDUCTION_FLAG = {
    torch.float16: "allow_fp16_reduced_precision_reduction",
    torch.bfloat16: "allow_bf16_reduced_precision_reduction",
}


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16 with any strides; K = 0 gives zeros.

    The arithmetic is set for the call and put back after it, whatever it ends with; PyTorch keeps it for the whole
    process, so this is not for several threads with different wishes. float32: `fp32_precision` is "ieee" or "tf32",
    on a GPU; on a CPU only "ieee". 16 bits: products are exact and sums float32, as PyTorch's CPU kernels do anyway;
    on a GPU cuBLAS is also forbidden to add the parts of a split K in 16 bits, which PyTorch allows by default.

    Raises ValueError for other shapes, dtypes, precisions and for two devices, NotImplementedError for "tf32" on a
    CPU.
    """
    _check(a, b, precision)
    if a.dtype == torch.float32:
        flags = torch.backends.cuda.matmul if a.is_cuda else torch.backends.mkldnn.matmul
        return _matmul_with(flags, "fp32_precision", precision, a, b)
    if a.is_cuda:
        return _matmul_with(torch.backends.cuda.matmul, REDUCTION_FLAG[a.dtype], False, a, b)
    return torch.matmul(a, b)


def _matmul_with(flags: object, name: str, value: str | bool, a: Tensor, b: Tensor) -> Tensor:
    """The product under one setting of the process, which is read, set and put back in 1 to 2 us."""
    before = getattr(flags, name)
    if before == value:
        return torch.matmul(a, b)
    setattr(flags, name, value)
    try:
        return torch.matmul(a, b)
    finally:
        setattr(flags, name, before)


def _check(a: Tensor, b: Tensor, precision: str) -> None:
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={tuple(a.shape)}, so b must be ({a.shape[1]}, N); got {tuple(b.shape)}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be on {a.device}; got {b.device}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"matmul: precision must be 'ieee' or 'tf32'; got {precision!r}")
    if precision == "tf32":
        if a.dtype != torch.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        if not a.is_cuda:
            raise NotImplementedError(f"matmul: precision 'tf32' needs NVIDIA's tensor cores; a is on {a.device}")
