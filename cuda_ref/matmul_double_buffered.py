"""Matrix multiplication in CUDA, double-buffered: the next tiles are loaded while these are multiplied."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; products and sums in float32, rounded once at the end.
    Precision: "ieee" multiplies what it is given; "tf32", for float32 only, rounds the factors to tf32 (11
    significant bits, to nearest, ties away from zero) first. Both add in float32, in order of k, without tensor cores.
    Tail: tiles (128 x 256, or 64 x 128) that overhang are filled with zeros, one element at a time; what lies beyond
    the edge of the output is not stored. Offsets are int64. Inside, operands whose rows (or columns) start at multiples
    of four elements are read four at a time.
    Devices: CUDA; on the CPU, for agreement only, the same kernel emulated.
    Errors: ValueError for other shapes, dtypes and precisions, and for two devices; build.CudaError if the launch
    fails.
    Source: see matmul_double_buffered.cu.
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

    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matmul_double_buffered", "matmul_double_buffered", a.device,
            a, b, out, M, N, K, *a.stride(), *b.stride(), precision == "tf32", build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
