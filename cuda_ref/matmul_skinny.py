"""Matrix multiplication in CUDA for few rows, as in decoding: everything for the bandwidth of b."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

REQUIRES = "sm_90"
MAX_M = 64


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), M at most 64, K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. a must be contiguous along K, b along either dimension; the other stride must be a
    multiple of 8 elements, and the first element must lie at a multiple of 16 bytes.
    Dtypes: float16, bfloat16; sums are float32, rounded once at the end.
    Tail: TMA fills with zeros what overhangs the inputs; what lies beyond the edge of the output is not stored.
    Devices: CUDA, compute capability 9.0.
    Errors: ValueError for other shapes, dtypes and precisions, and for two devices; NotImplementedError for more rows,
    for float32, for other strides, and on other devices; build.CudaError if the launch fails.
    Source: see matmul_skinny.cu.
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
    if a.dtype == torch.float32:
        raise NotImplementedError("matmul: written for float16 and bfloat16; got torch.float32")
    if M > MAX_M:
        raise NotImplementedError(f"matmul: M must be at most {MAX_M}; got M={M}")
    if max(N, K) > 2**30:
        raise NotImplementedError(f"matmul: N and K must be at most 2^30; got {(N, K)}")

    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    a_stride = _stride(a, 1)
    b_stride = _stride(b, 0)
    across = b_stride is None  # K
    if across:
        b_stride = _stride(b, 1)
    for name, x, stride, dims in (("a", a, a_stride, "along K"), ("b", b, b_stride, "in one dimension")):
        if stride is None:
            raise NotImplementedError(
                f"matmul: TMA needs {name} contiguous {dims}, with rows a multiple of 8 elements apart that start at a "
                f"multiple of 16 bytes; got strides {x.stride()} at an address that is {x.data_ptr() % 16} beyond one"
            )
    out = a.new_empty(M, N)
    build.launch(
        "matmul_skinny", "matmul_skinny", a.device,
        a, b, out, M, N, K, a_stride, across, b_stride, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out


def _stride(x: Tensor, inner: int) -> int | None:
    """The stride of the dimension that is not `inner`, if TMA can copy x along `inner`, else None."""
    size, stride = x.shape[inner], x.stride(1 - inner)
    if x.shape[1 - inner] == 1:  # then any will do
        stride = -(-size // 8) * 8
    able = (x.stride(inner) == 1 or size == 1) and stride % 8 == 0 and stride >= size and x.data_ptr() % 16 == 0
    return stride if able else None
