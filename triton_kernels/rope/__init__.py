"""The rotary position embedding of queries and keys in Triton. A program rotates neighbouring heads."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_rope
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
PAIRS = 2**16 if INTERPRET else 1024  # pairs of features per program

Queries = Float[Tensor, "B S H D"]
Keys = Float[Tensor, "B S H_kv D"]
Angles = Float[Tensor, "S D/2"]


@triton.jit
def rotate(
    x_ptr, cos_ptr, sin_ptr, out_ptr, pid, B, S, H, HALF, strides, stride_cs, stride_ci, stride_ss, stride_si,
    LAYOUT: tl.constexpr, INVERSE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """One program rotates BLOCK_R heads, [BLOCK_R, BLOCK_I] pairs. The heads of all tokens are counted in one row."""
    first_token = pid.to(tl.int64) * BLOCK_R // H
    head = (pid.to(tl.int64) * BLOCK_R % H).to(tl.int32) + tl.arange(0, BLOCK_R)[:, None]
    position = (first_token % S).to(tl.int32) + head // H  # of the batch entry first_token // S, and beyond its end
    b = first_token // S + position // S
    s = (position % S).to(tl.int64)
    h = (head % H).to(tl.int64)
    x_ptr += b * strides[0] + s * strides[1] + h * strides[2]
    out_ptr += ((b * S + s) * H + h) * (2 * HALF)
    for start in range(0, HALF, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)[None, :]
        mask = (b < B) & (i < HALF)
        cos = tl.load(cos_ptr + s * stride_cs + i * stride_ci, mask=mask, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + s * stride_ss + i * stride_si, mask=mask, other=0.0).to(tl.float32)
        if INVERSE:
            sin = -sin
        if LAYOUT == "halves":
            first, second = i, i + HALF
            x1 = tl.load(x_ptr + first * strides[3], mask=mask, other=0.0).to(tl.float32)
            x2 = tl.load(x_ptr + second * strides[3], mask=mask, other=0.0).to(tl.float32)
            tl.store(out_ptr + first, x1 * cos - x2 * sin, mask=mask)
            tl.store(out_ptr + second, x2 * cos + x1 * sin, mask=mask)
        else:
            d = 2 * start + tl.arange(0, 2 * BLOCK_I)[None, :]
            both = (b < B) & (d < 2 * HALF)
            x = tl.load(x_ptr + d * strides[3], mask=both, other=0.0).to(tl.float32)
            x1, x2 = tl.split(tl.reshape(x, (BLOCK_R, BLOCK_I, 2)))
            y = tl.join(x1 * cos - x2 * sin, x2 * cos + x1 * sin)
            tl.store(out_ptr + d, tl.reshape(y, (BLOCK_R, 2 * BLOCK_I)), mask=both)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr, B, S, H, H_kv, HALF, programs_q, strides_q, strides_k,
    stride_cs, stride_ci, stride_ss, stride_si,
    LAYOUT: tl.constexpr, INVERSE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """The first programs_q programs rotate heads of q, the others heads of k."""
    pid = tl.program_id(0)
    if pid < programs_q:
        rotate(
            q_ptr, cos_ptr, sin_ptr, q_out_ptr, pid, B, S, H, HALF, strides_q,
            stride_cs, stride_ci, stride_ss, stride_si, LAYOUT, INVERSE, BLOCK_R, BLOCK_I,
        )  # fmt: skip
    else:
        rotate(
            k_ptr, cos_ptr, sin_ptr, k_out_ptr, pid - programs_q, B, S, H_kv, HALF, strides_k,
            stride_cs, stride_ci, stride_ss, stride_si, LAYOUT, INVERSE, BLOCK_R, BLOCK_I,
        )  # fmt: skip


@kept
def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k.

    Shapes: q (B, S, H, D), k (B, S, H_kv, D), cos and sin (S, D/2), any strides. The outputs are contiguous.
    Options: a pair is i and i + D/2 (`halves`), or 2i and 2i + 1 (`pairs`). `inverse` rotates back.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: pairs and heads beyond the last are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or layouts.
    Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv 2104.09864).
    """
    B, S, H, H_kv, D = check_rope(q, k, cos, sin, layout=layout)
    q_out, k_out = (empty_output(x.shape, x.dtype, x.device) for x in (q, k))
    if q_out.numel() + k_out.numel() > 0:
        BLOCK_I = min(triton.next_power_of_2(D // 2), PAIRS)
        BLOCK_R = PAIRS // BLOCK_I
        programs_q, programs_k = (triton.cdiv(B * S * heads, BLOCK_R) for heads in (H, H_kv))
        with device_of(q):
            launch(
                rope_kernel, (programs_q + programs_k,),
                q, k, cos, sin, q_out, k_out, B, S, H, H_kv, D // 2, programs_q, q.stride(), k.stride(),
                *cos.stride(), *sin.stride(), layout, inverse, BLOCK_R, BLOCK_I, num_warps=4,
            )  # fmt: skip
    return finished_output(q_out, q.dtype), finished_output(k_out, k.dtype)
