"""Matrix multiplication in CUDA, tiles copied asynchronously, several ahead."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32; products and sums in float32, in order of k.
    Precision: "ieee".
    Tail: tiles (128 x 256, or 64 x 128) that overhang are filled with zeros, one element at a time; what lies beyond
    the edge of the output is not stored. Offsets are int64. Inside, operands that are contiguous along m (or n), and
    start at multiples of 16 bytes, are copied four elements at a time.
    Devices: CUDA; on the CPU, for agreement only, the same kernel emulated.
    Errors: ValueError for other shapes, dtypes and precisions, and for two devices; NotImplementedError for 16-bit
    types and tf32, which would have to be converted on the way; build.CudaError if the launch fails.
    Source: see matmul_async_copies.cu.
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
        raise NotImplementedError(
            f'matmul: what is copied is not converted: float32 and "ieee" only; got {a.dtype}, "{precision}"'
        )

    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matmul_async_copies", "matmul_async_copies", a.device,
            a, b, out, M, N, K, *a.stride(), *b.stride(),
        )  # fmt: skip
    return out
