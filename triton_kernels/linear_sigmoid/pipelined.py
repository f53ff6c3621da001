"""A linear layer with a sigmoid in Triton: adds a loop that the compiler pipelines without stalls to the plain kernel.

The compiler knows the alignment, addresses are computed once before the loop, and tiles that fit are not masked.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.pipelining import alignment, known_multiple, opaque_offsets
from triton_kernels._common.sigmoid import sigmoid_16_bit, sigmoid_float32
from triton_kernels._common.tiles import grouped_tile
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.linear_sigmoid._configs_pipelined import CONFIGS, short_list, tuning_space  # noqa: F401
from triton_kernels.matmul import multiply_add

DETERMINISTIC = True
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def linear_sigmoid_pipelined_kernel(
    x_ptr, weight_ptr, bias_ptr, dy_ptr, out_ptr, M, N, K,
    stride_xm, stride_xk, stride_wn, stride_wk, stride_b, stride_dym, stride_dyn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr, ALIGN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of sigma(x weight^T + bias), [BLOCK_M, BLOCK_N], in float32 registers.

    Each step over K multiplies [BLOCK_M, BLOCK_K] of x by [BLOCK_K, BLOCK_N] of weight^T.
    ALIGN: elements in 16 bytes if all rows start and end at multiples of 16 bytes; otherwise 1.
    With dy the result is dz = dy s (1 - s), where s is the sigmoid.
    """
    if ALIGN > 1:
        stride_xm, stride_wn = known_multiple(stride_xm, ALIGN), known_multiple(stride_wn, ALIGN)
        K, N = known_multiple(K, ALIGN), known_multiple(N, ALIGN)
    tl.assume(K > 0)  # otherwise acc reaches the loop on two paths, and ptxas serializes the wgmmas
    pid_m, pid_n = grouped_tile(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    x_offs = offs_m[:, None].to(tl.int64) * stride_xm + offs_k[None, :].to(tl.int64) * stride_xk
    w_offs = offs_k[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
    x_ptrs = x_ptr + opaque_offsets(x_offs, ALIGN, True)
    w_ptrs = weight_ptr + opaque_offsets(w_offs, ALIGN, False)
    x_step = tl.full((), BLOCK_K, tl.int64) * stride_xk
    w_step = tl.full((), BLOCK_K, tl.int64) * stride_wk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if MASKED:
            x = tl.load(x_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
            w = tl.load(w_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        else:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        acc = multiply_add(x, w, acc, PRECISION)
        x_ptrs += x_step
        w_ptrs += w_step

    bias = tl.load(bias_ptr + offs_n.to(tl.int64) * stride_b, mask=offs_n < N, other=0.0)
    acc += bias.to(tl.float32)[None, :]
    acc = sigmoid_float32(acc) if bias.dtype == tl.float32 else sigmoid_16_bit(acc)
    inside = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if dy_ptr is not None:
        dy_ptrs = dy_ptr + offs_m[:, None].to(tl.int64) * stride_dym + offs_n[None, :].to(tl.int64) * stride_dyn
        dy = tl.load(dy_ptrs, mask=inside, other=0.0) if MASKED else tl.load(dy_ptrs)
        acc = dy.to(tl.float32) * (acc * (1.0 - acc))
    out_ptrs = out_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    if MASKED:
        tl.store(out_ptrs, acc, mask=inside)
    else:
        tl.store(out_ptrs, acc)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    KEY = ["M", "N", "K", "stride_xm", "stride_xk", "stride_wn", "stride_wk", "PRECISION"]
    linear_sigmoid_pipelined_kernel = autotune(CONFIGS, KEY, short_list)(linear_sigmoid_pipelined_kernel)


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out = sigma(x weight^T + bias).

    Shapes: x (M, K), weight (N, K), bias (N,), any strides, K = 0 included. The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; float32 inside, rounded once at the end.
    Precision: "ieee" multiplies the inputs exactly (float32 without tensor cores); "tf32", for float32 only: the tensor
    cores truncate each factor to 11 significant bits.
    Tail: loads and stores are masked unless every tile of every configuration fits. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for M above 2^28,
    N above 2^26 or K above 2^30.
    Source: `triton/pipelined` of matmul.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_sizes("linear_sigmoid", M, N, K)
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() > 0:
        with device_of(x):
            launch_forward(x, weight, bias, None, out, precision)
    return finished_output(out, x.dtype)


def launch_forward(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor | None, out: Tensor, precision: str) -> None:
    """Stores s = sigma(x weight^T + bias) in out, or dz = dy s (1 - s) if there is a dy. out is not empty."""
    if x.shape[1] == 0:  # the kernel needs at least one step
        x, weight = x.new_zeros(x.shape[0], 1), weight.new_zeros(weight.shape[0], 1)
    (M, K), N = x.shape, weight.shape[0]
    by_rows = x.stride(1) == 1 == weight.stride(1)
    launch(
        linear_sigmoid_pipelined_kernel,
        lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),),
        x, weight, bias, dy, out, M, N, K, *x.stride(), *weight.stride(), *bias.stride(),
        *((0, 0) if dy is None else dy.stride()), PRECISION=precision,
        MASKED=M % 256 != 0 or N % 256 != 0 or K % 256 != 0, GROUP_M=GROUP_M,
        ALIGN=alignment(x, weight, out) if by_rows else 1, **TILE,
    )  # fmt: skip
