"""Attention in Triton: chooses among parts, float8, gluon, specialized and packed.

The choice depends on shapes, strides, dtype and device alone. Times: results/nvidia-h200/attention_sizes.
"""

from types import ModuleType

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tma import readable
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import kept
from triton_kernels.attention import float8, gluon, packed, parts, specialized
from triton_kernels.attention._softmax import check_limits

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
GLUON_FROM = 512
"""Fewest queries and keys for `gluon`, the fewest at which it was measured."""


def choose(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, contiguous: bool = True) -> ModuleType:
    """The module whose kernel `attention` runs. contiguous: whether the output is contiguous, as `parts` needs."""
    if q.dtype == torch.float8_e4m3fn:
        return float8
    if q.shape[2] <= parts.MOST_QUERIES and contiguous:
        return parts
    if INTERPRET or q.element_size() != 2 or torch.cuda.get_device_capability(q.device)[0] != 9:
        return packed
    if _gluon_pays(q, k, v, causal):
        return gluon
    return specialized if _specialized_pays(q, k, v, causal) else packed


def _gluon_pays(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """True if `gluon` is the fastest, on Hopper in 16 bits. With D = 64 and a mask `packed` is faster by 5%."""
    S_q, D = q.shape[2:]
    covered = D in gluon.HEAD_DIMS and all(map(readable, (q, k, v)))
    return covered and min(S_q, k.shape[2]) >= GLUON_FROM and not (causal and D == 64)


def _specialized_pays(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """True if `specialized` covers the case, with a tile for each multiprocessor and tiles that are mostly full."""
    B, H, S_q, D = q.shape
    if D not in specialized.TILES or specialized.obstacle(q, k, v, causal):
        return False
    BLOCK_M = specialized.TILES[D].BLOCK_M
    tiles = triton.cdiv(S_q, BLOCK_M)
    return B * H * tiles >= multiprocessors(q) and 8 * tiles * BLOCK_M <= 9 * S_q


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
    Choice: `float8` for float8_e4m3fn; `parts` for up to 16 queries; on Hopper, in 16 bits, with rows that TMA reads,
    `gluon` for D = 64 without a mask, 128 and 256 from 512 queries and keys on, and for fewer, without a mask, with
    D = 128 or 256 and enough full tiles, `specialized`; `packed` for all others.
    Causal, dtypes, scales: those of the kernel that is chosen. float8 needs three scales and gives bfloat16.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for other D, a negative
    sm_scale, or strides of k and v along S_k or D of 2**22 or more; RuntimeError in a CUDA graph capture for a call
    that must compile, and with `gluon` for a causal call with new sizes.
    """
    scales = scale_q, scale_k, scale_v
    check_attention(q, k, v, scales)
    check_limits(q, k, v, sm_scale)
    dtype = torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype
    out = empty_output(q.shape, dtype, q.device)
    if q.dtype == torch.float8_e4m3fn:
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
    """Writes the result of `attention` to `out` (B, H, S_q, D), with strides that TMA can write; not for float8."""
    choose(q, k, v, causal=causal, contiguous=out.is_contiguous()).attend(q, k, v, out, causal, sm_scale)
