"""Matrix multiplication in Triton, simpler than the plain kernel: one tile size, tiles in row-major order."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
BLOCK = 256 if INTERPRET else 64  # numpy multiplies large tiles faster
BLOCK_K = 256 if INTERPRET else 32


@triton.jit
def naive_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    PRECISION: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program p computes tile p of C, [BLOCK, BLOCK]. Tiles are numbered in row-major order."""
    tiles_n = tl.cdiv(N, BLOCK)
    row, column = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    offs_m = (row * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]  # [BLOCK, 1]
    offs_n = (column * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[None, :]  # [1, BLOCK]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_ptrs = a_ptr + offs_m * stride_am + offs_k[None, :] * stride_ak  # [BLOCK, BLOCK_K]
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n * stride_bn  # [BLOCK_K, BLOCK]
        a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n < N), other=0.0)
        acc = tl.dot(dot_operand(a), dot_operand(b), acc, input_precision=PRECISION)
    tl.store(c_ptr + offs_m * N + offs_n, acc, mask=(offs_m < M) & (offs_n < N))


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), any strides, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs exactly; "tf32", for float32 only: the tensor cores truncate each factor to
    11 significant bits.
    Tail: loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for M above 2^28,
    N above 2^26 or K above 2^30.
    """
    check_matmul(a, b, precision=precision)
    (M, K), N = a.shape, b.shape[1]
    check_sizes("matmul", M, N, K)
    out = empty_output((M, N), a.dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            launch(
                naive_matmul_kernel, (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK),),
                a, b, out, M, N, K, *a.stride(), *b.stride(),
                PRECISION=precision, BLOCK=BLOCK, BLOCK_K=BLOCK_K, num_warps=4,
            )  # fmt: skip
    return finished_output(out, a.dtype)
