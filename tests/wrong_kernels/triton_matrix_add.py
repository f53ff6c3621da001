"""C = A + B in Triton, tile by tile, with mistakes in strides and grid."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "strides_of_a_for_b": Wrong("B is read with A's strides", "value", (33, 65), options={"layout": "nt"}),
    "grid_axes_swapped": Wrong("the grid counts columns first, the kernel rows", "not finite", (200, 40)),
    "row_length_rounded_up": Wrong("rows of the output are taken to be whole tiles", "not finite", (60, 33)),
}
BLOCK = 32


@triton.jit
def kernel(
    a_ptr, b_ptr, out_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn, stride_cm,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    a = tl.load(a_ptr + offs_m * stride_am + offs_n * stride_an, mask=mask)
    b = tl.load(b_ptr + offs_m * stride_bm + offs_n * stride_bn, mask=mask)
    at = offs_m * stride_cm + offs_n
    tl.store(out_ptr + at, a + b, mask=mask & (at < M * N))


def make(mistake: str):
    def matrix_add(a: Tensor, b: Tensor) -> Tensor:
        M, N = a.shape
        out = torch.empty(M, N, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
        if mistake == "grid_axes_swapped":
            grid = grid[::-1]
        b_strides = a.stride() if mistake == "strides_of_a_for_b" else b.stride()
        stride_cm = triton.cdiv(N, BLOCK) * BLOCK if mistake == "row_length_rounded_up" else N
        kernel[grid](a, b, out, M, N, *a.stride(), *b_strides, stride_cm, BLOCK)
        return out

    return matrix_add
