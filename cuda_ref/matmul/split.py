"""Matrix multiplication in CUDA: float32 accuracy from Hopper's bfloat16 tensor cores, each number split in three."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.matmul._limits import check_sizes

REQUIRES = "sm_90"
DETERMINISTIC = True
ARITHMETIC = "6 x bfloat16"
GROUP_K = 16  # as in split.cu


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes up to 2^29, K = 0 included; the output is contiguous.
    Dtypes: float32; the tensor cores multiply bfloat16, exactly, and add in float32.
    Precision: "ieee". The error of a product is below 2^-24, and sums have fewer roundings than float32 products and
    sums. An element below 2^-110 of the largest one in its row of a or column of b loses low bits; below 2^-133, all.
    Partial sums do not overflow: out is infinite only where the result is beyond float32 or an input is infinite.
    Memory: 6 bytes for each element of a and b, K rounded up to a multiple of 16, and 8 for each row and column.
    Tail: TMA pads tiles that overhang the inputs with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for 16-bit inputs and tf32, which need a single product, and on other devices; build.CudaError
    if a launch fails.
    Source: see split.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    if a.dtype != torch.float32 or precision != "ieee":
        raise NotImplementedError(f'matmul: splits float32 with precision="ieee" only; got {a.dtype}, "{precision}"')
    check_sizes((M, N, K), 29)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    out = a.new_empty(M, N)
    parts = a.new_empty(M + N, 3 * (-(-K // GROUP_K) * GROUP_K), dtype=torch.bfloat16)
    scales = a.new_empty(M + N, 2)
    build.launch("matmul/split", "matmul_split", a.device, a, b, out, parts, scales, M, N, K, *a.stride(), *b.stride())
    return out
