"""Chooses its block by Triton's autotuner, whose trials write to the result."""

import torch
import triton
import triton.language as tl

OPERATION = "vector_add"
TWIN_OF = "gpu_patches_the_cache_by_a_carve_out"
GPU = True
SHAPE = "N=1048576"
framework = "triton"


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (256, 1024, 4096)], key=["N"])
@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, stride_a, stride_b, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < N
    a = tl.load(a_ptr + offsets * stride_a, mask=mask)
    b = tl.load(b_ptr + offsets * stride_b, mask=mask)
    tl.store(c_ptr + offsets, a + b, mask=mask)


def vector_add(a, b):
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    if a.numel():
        add[lambda meta: (triton.cdiv(len(a), meta["BLOCK"]),)](a, b, out, len(a), a.stride(0), b.stride(0))
    return out
