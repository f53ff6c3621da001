"""Matrix product by torch.matmul: cuBLAS on a GPU, oneDNN and MKL on a CPU; of float8, by torch._scaled_mm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

VENDOR = "PyTorch (cuBLAS on a GPU)"
DTYPES_BEYOND = ("float8_e4m3fn",)

REDUCTION_FLAG = {
    torch.float16: "allow_fp16_reduced_precision_reduction",
    torch.bfloat16: "allow_bf16_reduced_precision_reduction",
}


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16 with any strides; K = 0 gives zeros.

    Of float8_e4m3fn it is that times scale_a scale_b, in bfloat16. Sums stay in the tensor cores ("fast"), or cuBLASLt
    promotes them to float32 at intervals of K ("promoted"). On a GPU a must be stored by rows and b by columns, K and N
    multiples of 16, and both aligned to 16 bytes.

    The arithmetic is set for the call and put back after it, whatever it ends with; PyTorch keeps it for the whole
    process, so this is not for several threads with different wishes. float32: `fp32_precision` is "ieee" or "tf32",
    on a GPU; on a CPU only "ieee". 16 bits: products are exact and sums float32, as PyTorch's CPU kernels do anyway;
    on a GPU cuBLAS is also forbidden to add the parts of a split K in 16 bits, which PyTorch allows by default.

    Raises ValueError for other shapes, dtypes, scales, precisions and for two devices, NotImplementedError for "tf32"
    on a CPU and for other float8 matrices on a GPU.
    """
    _check(a, b, precision)
    _check_scales(a, scale_a, scale_b)
    if scale_a is not None:
        return _matmul_float8(a, b, scale_a, scale_b, fast=precision == "fast")
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


def _check(a: Tensor, b: Tensor, precision: str) -> None:
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={tuple(a.shape)}, so b must be ({a.shape[1]}, N); got {tuple(b.shape)}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be on {a.device}; got {b.device}")
    allowed = ("promoted", "fast") if a.dtype == torch.float8_e4m3fn else ("ieee", "tf32")
    if precision not in allowed:
        raise ValueError(f"matmul: precision must be {allowed[0]!r} or {allowed[1]!r} for {a.dtype}; got {precision!r}")
    if precision == "tf32":
        if a.dtype != torch.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        if not a.is_cuda:
            raise NotImplementedError(f"matmul: precision 'tf32' needs NVIDIA's tensor cores; a is on {a.device}")


def _check_scales(a: Tensor, *scales: Tensor | None) -> None:
    wanted = (torch.Size(), torch.float32, a.device) if a.dtype == torch.float8_e4m3fn else None
    for name, scale in zip(("scale_a", "scale_b"), scales, strict=True):
        found = None if scale is None else (scale.shape, scale.dtype, scale.device)
        if found != wanted:
            raise ValueError(f"matmul: a is {a.dtype}, so {name} must be {_told(wanted)}; got {_told(found)}")


def _told(scale: tuple[torch.Size, torch.dtype, torch.device] | None) -> str:
    return "None" if scale is None else f"{scale[1]} {tuple(scale[0])} on {scale[2]}"
