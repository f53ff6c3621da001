"""Attention over a cache in pages in CUDA: adds tensor cores and a division of the keys among blocks."""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.caches import check_paged_attention
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import HEAD_DIMS, readable, scales
from cuda_ref.attention.decode import STEP, cdiv, parts_of, resident

DETERMINISTIC = True
ROWS = 16
"""Rows of a block, as in attention/decoding.cuh."""


@kept
def paged_attention(
    q: Float[Tensor, "B S_q H D"],
    k_pages: Float[Tensor, "P page H_kv D"],
    v_pages: Float[Tensor, "P page H_kv D"],
    table: Int32[Tensor, "B pages"],
    lengths: Int32[Tensor, "B"],
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    sm_scale: float | None = None,
) -> Float[Tensor, "B S_q H D"]:
    """o[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale q[b, i, h] . k[b, j, h_kv]) v[b, j, h_kv].

    Key j of sequence b is k_pages[table[b, j // page], j % page]. Query head h reads key head h // (H // H_kv).
    `sm_scale` defaults to 1 / sqrt(D). A query that sees no key gives zeros. Slots without a token are not read.

    Shapes: q (B, S_q, H, D), pages (P, page, H_kv, D), table (B, pages), lengths (B,), D 64, 128 or 256, any page size.
    An operand whose rows are not contiguous, or not at multiples of 16 bytes, is copied first.
    Dtypes: float16, bfloat16; scores, softmax and sums in float32, weights rounded to 16 bits for their product with v;
    table and lengths int32. Pages of float8_e4m3fn have a scale each, of keys and of values: float32, of shape ().
    Their products are of float16: codes exactly, and a row of q times a power of two.
    Memory: D + 2 float32 numbers for each row and part.
    Devices: CUDA, compute capability 8.0 or newer; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32, other D, a negative sm_scale, more than 2^30 slots or rows, and pages of more than 64 GiB;
    build.CudaError if the launch fails.
    Source: see decode.cu.
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    _check_covered(q, k_pages, v_pages, table.shape[1] * page, sm_scale)
    out = q.new_empty(q.shape)
    if out.numel() == 0:
        return out
    q, k_pages, v_pages = (readable(x) for x in (q, k_pages, v_pages))
    parts, part = division(q, k_pages, table)
    sums = statistics = out
    if parts > 1:
        sums = q.new_empty(B * S_q * H, parts, D, dtype=torch.float32)
        statistics = q.new_empty(B * S_q * H, parts, 2, dtype=torch.float32)
    build.launch(
        "paged_attention/decode", "paged_decode", q.device,
        q, k_pages, v_pages, table, lengths, scale_k, scale_v, out, sums, statistics, scale_k is not None,
        B, S_q, H, H_kv, page, D,
        *q.stride()[:3], *k_pages.stride()[:3], *v_pages.stride()[:3], *table.stride(), *lengths.stride(), part, parts,
        scales(D, sm_scale)[1], build.DTYPES[q.dtype],
    )  # fmt: skip
    return out


def config(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale_k: Tensor | None = None,
    scale_v: Tensor | None = None,
    *,
    sm_scale: float | None = None,
) -> str:
    """The number of parts of the keys, such as `paged_decode parts=3`; empty if there is nothing to compute."""
    return f"paged_decode parts={division(q, k_pages, table)[0]}" if q.numel() else ""


def division(q: Tensor, k_pages: Tensor, table: Tensor) -> tuple[int, int]:
    """The number of parts and the keys per part, from shapes, dtype and device alone. On a CPU up to three parts."""
    (B, S_q, H, D), (page, H_kv) = q.shape, k_pages.shape[1:3]
    slots = max(1, table.shape[1] * page)
    if not q.is_cuda:
        part = cdiv(slots, 3 * STEP) * STEP
        return cdiv(slots, part), part
    blocks = B * H_kv * cdiv(S_q * (H // H_kv), ROWS)
    row = D * k_pages.element_size()
    return parts_of(blocks, slots, 2 * STEP * row, multiprocessors(q.device), resident(row))


def _check_covered(q: Tensor, k_pages: Tensor, v_pages: Tensor, slots: int, sm_scale: float | None) -> None:
    """Raises NotImplementedError for consistent arguments that the kernels do not cover."""
    if q.dtype == torch.float32:
        raise NotImplementedError("paged_attention: written for float16 and bfloat16; got torch.float32")
    if q.shape[3] not in HEAD_DIMS:
        raise NotImplementedError(f"paged_attention: D must be 64, 128 or 256; got D={q.shape[3]}")
    if sm_scale is not None and sm_scale < 0:
        raise NotImplementedError(f"paged_attention: sm_scale must not be negative; got {sm_scale}")
    if max(slots, q.shape[0] * q.shape[1] * q.shape[2]) > 2**30:
        rows = q.shape[0] * q.shape[1] * q.shape[2]
        raise NotImplementedError(f"paged_attention: at most 2^30 slots and rows; got {slots} and {rows}")
    largest = max(x.stride(0) * x.shape[0] * x.element_size() for x in (k_pages, v_pages))
    if largest > 2**36:
        raise NotImplementedError(f"paged_attention: pages of keys or values take at most 64 GiB; got {largest} bytes")
