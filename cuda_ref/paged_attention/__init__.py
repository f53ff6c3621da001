"""Attention over a cache in pages, in CUDA: a warp computes one query by the online softmax, all in float32."""

import math

from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.caches import check_paged_attention
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
QUERIES = 4  # queries per block, as in paged_attention.cu


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

    Shapes: q (B, S_q, H, D), pages (P, page, H_kv, D), table (B, pages), lengths (B,); any strides, any page size, D up
    to 256. The output is contiguous.
    Dtypes: float32, float16, bfloat16; all float32 inside, without tensor cores, rounded once; table and lengths int32.
    Pages of float8_e4m3fn have a scale each, of keys and of values: float32, of shape ().
    Tail: a lane takes every 32nd column up to D; hidden keys are not read.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for D
    above 256 and for more than 2^30 blocks; build.CudaError if the launch fails.
    Source: see paged_attention.cu.
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    if D > 256 or -(-B * S_q * H // QUERIES) > 2**30:
        raise NotImplementedError(
            f"paged_attention: D must be at most 256 and B * S_q * H at most 2^32; got D={D} and {B * S_q * H}"
        )
    out = q.new_empty(q.shape)
    if out.numel() > 0:
        build.launch(
            "paged_attention/paged_attention", "paged_attention", q.device,
            q, k_pages, v_pages, table, lengths, scale_k, scale_v, out, scale_k is not None, B, S_q, H, H_kv, page, D,
            *q.stride(), *k_pages.stride(), *v_pages.stride(), *table.stride(), *lengths.stride(),
            1.0 / math.sqrt(D) if sm_scale is None else sm_scale, build.DTYPES[q.dtype],
        )  # fmt: skip
    return out
