"""Matrix multiplication in CUDA: float32 accuracy from Hopper's bfloat16 tensor cores, each number split in three."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

REQUIRES = "sm_90"
DETERMINISTIC = True
ARITHMETIC = "6 x bfloat16"
GROUP_K = 16  # as in matmul_split.cu


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes up to 2^29, K = 0 included; the output is contiguous.
    Dtypes: float32; the tensor cores multiply bfloat16, exactly, and add in float32.
    Precision: "ieee". Products err by less than 2^-24, and there are fewer roundings than with float32 products and
    sums. An element below 2^-110 of the largest in its row of a or column of b loses low bits, below 2^-133 all.
    Partial sums do not overflow: out is infinite only where the result is beyond float32, or an input infinite.
    Memory: 6 bytes for each element of a and b, K rounded up to a multiple of 16, and 8 for each row and column.
    Tail: TMA fills with zeros what overhangs the inputs; what lies beyond the edge of the output is not stored.
    Devices: CUDA, compute capability 9.0.
    Errors: ValueError for other shapes, dtypes and precisions, and for two devices; NotImplementedError for 16-bit
    inputs and tf32, which are exact in one product, and on other devices; build.CudaError if a launch fails.
    Source: see matmul_split.cu.
    """
    if a.dim() != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.dim() != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in build.DTYPES:
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    if precision != "ieee" and (precision != "tf32" or a.dtype != torch.float32):
        raise ValueError(f'matmul: precision must be "ieee", or "tf32" for float32; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    if a.dtype != torch.float32 or precision != "ieee":
        raise NotImplementedError(f'matmul: splits float32 with precision="ieee" only; got {a.dtype}, "{precision}"')
    if max(M, N, K) > 2**29:
        raise NotImplementedError(f"matmul: M, N and K must be at most 2^29; got {(M, N, K)}")

    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    out = a.new_empty(M, N)
    parts = a.new_empty(M + N, 3 * (-(-K // GROUP_K) * GROUP_K), dtype=torch.bfloat16)
    scales = a.new_empty(M + N, 2)
    build.launch("matmul_split", "matmul_split", a.device, a, b, out, parts, scales, M, N, K, *a.stride(), *b.stride())
    return out
