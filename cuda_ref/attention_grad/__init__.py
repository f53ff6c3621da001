"""The gradients of attention in CUDA, the plain kernel: four lanes compute one query or one key, all in float32."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention_grad, check_window
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
OPTIONS_BEYOND = ("window",)
ROWS = 32  # queries or keys per block, as in attention_grad.cu

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]
Scale = Float[Tensor, ""]


@kept
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), D up to 128, H a multiple of H_kv: query head h uses key
    head h // (H // H_kv). Any strides; torch first copies a tensor whose last dimension is not contiguous. The results
    are contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key has gradient 0.
    With `window` a query sees only that many keys up to its own.
    Dtypes: float32, float16, bfloat16, the same for all; everything in float32 without tensor cores, rounded once at
    the end. float8_e4m3fn: q, k, v and do have a float32 scale of shape () each, and the gradients of the scaled
    operands are bfloat16. Memory: two float32 numbers for each query.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and scales, and for tensors on different devices; NotImplementedError
    for D above 128 and for more than 2^30 queries, keys or blocks; build.CudaError if a launch fails.
    Source: see attention_grad.cu.
    """
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do, (scale_q, scale_k, scale_v, scale_do))
    near = check_window("attention_grad", window, causal, S_k)
    if D > 128:
        raise NotImplementedError(f"attention_grad: D must be at most 128; got D={D}")
    if max(S_q, S_k, B * H * -(-S_q // ROWS), B * H_kv * -(-S_k // ROWS)) > 2**30:
        raise NotImplementedError(
            f"attention_grad: S_q, S_k and the number of blocks must be at most 2^30; got q {tuple(q.shape)} and "
            f"k {tuple(k.shape)}"
        )
    dtype = torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype
    dq, dk, dv = (x.new_empty(x.shape, dtype=dtype) for x in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    q, k, v, do = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, do))
    lse, delta = (torch.empty((B, H, S_q), dtype=torch.float32, device=q.device) for _ in range(2))
    scales, limit = (scale_q, scale_k, scale_v, scale_do), (near or S_k,)
    function = "attention_grad_scaled"
    if scale_q is None and not near:
        function, scales, limit = "attention_grad", (), ()
    build.launch(
        "attention_grad/attention_grad", function, q.device,
        q, k, v, do, *scales, lse, delta, dq, dk, dv, B, H, H_kv, S_q, S_k, D,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3],
        causal, *limit, 1.0 / math.sqrt(D) if sm_scale is None else sm_scale, build.DTYPES[dtype],
    )  # fmt: skip
    return dq, dk, dv
