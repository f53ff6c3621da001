"""Attention in CUDA of float8 tensors with a scale per operand, on Hopper's tensor cores: adds a kernel that transposes
the values to wgmma.py, and weights that fill the range of float8."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import HEAD_DIMS, check_covered, copied, readable, scales, strides

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
TILES = {64: ((192, 128), (192, 128)), 128: ((128, 192), (192, 96)), 256: ((128, 96), (128, 96))}
"""Queries of a tile and keys of a step by D, without a mask and causal, as in float8.cu."""
TRANSPOSED = 128
"""Keys that a block of the first kernel transposes."""


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    scale_q: Float[Tensor, ""] | None = None,
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale scale_q q (scale_k k)^T) scale_v v, for each batch entry and head.

    Shapes, masks and copies: those of `attend` in cuda_ref/attention/_hopper.py. scale_q, scale_k and scale_v: float32,
    of shape ().
    Dtypes: q, k and v float8_e4m3fn, the output bfloat16. The tensor cores keep 14 bits of sums of products; softmax
    and its sums in float32, weights rounded to float8 for their product with v. Writes v once by columns.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and scales, and for tensors on different devices; NotImplementedError
    for float32, float16 and bfloat16, other D, a negative sm_scale, more than 2^30 queries, keys or tiles, and on other
    devices; build.CudaError if the launch fails.
    Source: see float8.cu.
    """
    B, H, H_kv, S_q, S_k, D = check_attention(q, k, v, (scale_q, scale_k, scale_v))
    if q.dtype != torch.float8_e4m3fn:
        raise NotImplementedError(f"attention: needs float8_e4m3fn; got {q.dtype}")
    check_covered("attention", q, k, HEAD_DIMS, sm_scale)
    out = q.new_empty(B, H, S_q, D, dtype=torch.bfloat16)
    if S_k == 0:
        return out.zero_()
    if out.numel() > 0:
        q, k, v = (readable(x) for x in (q, k, v))
        columns = q.new_empty(B, H_kv, D, -(-S_k // TRANSPOSED) * TRANSPOSED)
        build.launch(
            "attention/float8", "attention_float8", q.device,
            q, k, v, scale_q, scale_k, scale_v, columns, out, B, H, H_kv, S_q, S_k, D,
            *strides(q), *strides(k), *strides(v), causal, scales(D, sm_scale)[1],
        )  # fmt: skip
    return out


def config(
    q: Tensor, k: Tensor, v: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels, with queries of a tile and keys of a step, as in `transpose_values; float8 128x192`; empty without
    queries or keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    BLOCK_M, BLOCK_N = TILES[q.shape[3]][causal]
    return f"transpose_values; float8 {BLOCK_M}x{BLOCK_N}{copied(q, k, v)}"
