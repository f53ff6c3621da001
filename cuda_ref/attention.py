"""Attention in CUDA: online softmax over tiles of keys in shared memory, all in float32."""

import math

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True
BLOCK_M = 32  # queries of a thread block, as in attention.cu


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), D up to 256, H a multiple of H_kv: query head h uses key head
    h_kv = h // (H // H_kv). Any strides, but a tensor whose last dimension is not contiguous is first copied by torch.
    The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees none gives zeros.
    NaN and infinities in hidden keys and values do not reach it.
    Dtypes: float32, float16, bfloat16, the same for all; scores, softmax and sums in float32 without tensor cores,
    rounded once at the end. The S_q x S_k scores are never stored.
    Tail: tiles that overhang are filled with zeros and their scores masked. D is filled up to 64, 128 or 256.
    Devices: CUDA; on the CPU, for agreement only, the same kernel emulated.
    Errors: ValueError for other shapes and dtypes, and for two devices; NotImplementedError for D above 256 and for
    more than 2^30 queries, keys or blocks; build.CudaError if the launch fails.
    Source: see attention.cu.
    """
    if q.dim() != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {tuple(q.shape)}")
    B, H, S_q, D = q.shape
    if k.dim() != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(
            f"attention: q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D}); got {tuple(k.shape)}"
        )
    _, H_kv, S_k, _ = k.shape
    if v.shape != k.shape:
        raise ValueError(f"attention: k is (B, H_kv, S_k, D)={tuple(k.shape)}, so v must be too; got {tuple(v.shape)}")
    if H % H_kv != 0 if H_kv > 0 else H > 0:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={H_kv}")
    if q.dtype not in build.DTYPES:
        raise ValueError(f"attention: q must be float32, float16 or bfloat16; got {q.dtype}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"attention: q is {q.dtype}, so k and v must be too; got {k.dtype} and {v.dtype}")
    if k.device != q.device or v.device != q.device:
        raise ValueError(f"attention: q is on {q.device}, so k and v must be too; got {k.device} and {v.device}")
    if D > 256:
        raise NotImplementedError(f"attention: D must be at most 256; got D={D}")
    if max(S_q, S_k, B * H * -(-S_q // BLOCK_M)) > 2**30:
        raise NotImplementedError(
            f"attention: S_q, S_k and B * H * ceil(S_q / {BLOCK_M}) must be at most 2^30; "
            f"got B={B}, H={H}, S_q={S_q}, S_k={S_k}"
        )

    out = q.new_empty(B, H, S_q, D)
    if out.numel() > 0:
        if q.stride(3) != 1:
            q = q.contiguous()
        if k.stride(3) != 1:
            k = k.contiguous()
        if v.stride(3) != 1:
            v = v.contiguous()
        build.launch(
            "attention", "attention", q.device,
            q, k, v, out, B, H, H_kv, S_q, S_k, D, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            causal, 1.0 / math.sqrt(D) if sm_scale is None else sm_scale, build.DTYPES[q.dtype],
        )  # fmt: skip
    return out
