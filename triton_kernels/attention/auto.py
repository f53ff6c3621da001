"""Attention in Triton by the kernel that suits the case: parts, float8, specialized or packed.

Adds to the variants: the choice, by shapes, strides, dtype and device alone.
"""

from types import ModuleType

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import FLOAT8, check_attention
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import kept
from triton_kernels.attention import float8, packed, parts, specialized
from triton_kernels.attention._softmax import check_limits

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


def choose(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, contiguous: bool = True) -> ModuleType:
    """The module whose kernel `attention` runs. contiguous: the output is, which `parts` needs."""
    if q.dtype == FLOAT8:
        return float8
    if q.shape[2] <= parts.MOST_QUERIES and contiguous:
        return parts
    if not INTERPRET and q.shape[3] in specialized.TILES and not specialized.obstacle(q, k, v, causal):
        BLOCK_M = specialized.TILES[q.shape[3]].BLOCK_M
        tiles = triton.cdiv(q.shape[2], BLOCK_M)
        enough = q.shape[0] * q.shape[1] * tiles >= multiprocessors(q)
        full = 8 * tiles * BLOCK_M <= 9 * q.shape[2]  # at most an eighth of the rows beyond the last query
        if enough and full:
            return specialized
    return packed


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
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Choice: `float8` for float8_e4m3fn; `parts` for up to 16 queries; on Hopper, without a mask, in 16 bits, with
    D = 128 or 256, rows that TMA reads and enough full tiles `specialized`; `packed` for all others.
    Causal, dtypes, scales: those of the kernel that is chosen. float8 needs three scales and gives bfloat16.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for other D, a negative
    sm_scale, or strides of k and v along S_k or D of 2**22 or more.
    """
    scales = scale_q, scale_k, scale_v
    check_attention(q, k, v, scales)
    check_limits(q, k, v, sm_scale)
    dtype = torch.bfloat16 if q.dtype == FLOAT8 else q.dtype
    out = empty_output(q.shape, dtype, q.device)
    if q.dtype == FLOAT8:
        float8.attend(q, k, v, scales, out, causal, sm_scale)
    else:
        choose(q, k, v, causal=causal).attend(q, k, v, out, causal, sm_scale)
    return finished_output(out, dtype)


def config(
    q: Tensor, k: Tensor, v: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels that `attention` runs, with their tiles and parts; empty if there is nothing to compute."""
    text: str = choose(q, k, v, causal=causal).config(q, k, v, *scales, causal=causal, sm_scale=sm_scale)
    return text


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None) -> None:
    """Writes attention's result to `out` (B, H, S_q, D), of any strides with contiguous rows; not for float8."""
    choose(q, k, v, causal=causal, contiguous=out.is_contiguous()).attend(q, k, v, out, causal, sm_scale)
