"""Vector addition in Triton: the streaming skeleton that every memory-bound kernel shares."""

import torch
import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

DETERMINISTIC = True
INTERPRET = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OUT_DTYPE = torch.float32 if INTERPRET else None  # the interpreter truncates to bfloat16: it leaves rounding to torch
LARGE_BYTES = 2**26  # of an operand: then there are so many programs that large ones pay
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (4096, 16384)  # per operand and program: small, large data
NUM_WARPS = (8, 32)  # natively one 16-byte load a thread and operand


@triton.jit(do_not_specialize=["N"])
def vector_add_kernel(a_ptr, b_ptr, out_ptr, N, stride_a, stride_b, BLOCK: tl.constexpr):
    """One program adds BLOCK consecutive elements.

    Strides equal to 1 are compiled in as constants, which turns the loads into 16-byte ones. Only the last program
    masks: a mask on N would cost every program its wide loads whenever N is not a multiple of 16.
    """
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = tl.arange(0, BLOCK)
    a_ptrs = a_ptr + start * stride_a + offs.to(tl.int64) * stride_a
    b_ptrs = b_ptr + start * stride_b + offs.to(tl.int64) * stride_b
    out_ptrs = out_ptr + start + offs
    if start + BLOCK <= N:
        a = tl.load(a_ptrs).to(tl.float32)
        b = tl.load(b_ptrs).to(tl.float32)
        tl.store(out_ptrs, a + b)
    else:
        mask = offs < (N - start).to(tl.int32)
        a = tl.load(a_ptrs, mask=mask).to(tl.float32)
        b = tl.load(b_ptrs, mask=mask).to(tl.float32)
        tl.store(out_ptrs, a + b, mask=mask)


def vector_add(a: Shaped[Tensor, "N"], b: Shaped[Tensor, "N"]) -> Shaped[Tensor, "N"]:
    """out[i] = a[i] + b[i].

    Shapes: a (N,), b (N,), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; one rounding, of the exact sum.
    Tail: the last program masks what lies beyond N; offsets are int64, so N may pass 2**31.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: the vector addition of Triton's tutorials, with the mask moved to the last block.
    """
    if a.ndim != 1:
        raise ValueError(f"vector_add: a must be (N,); got {tuple(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"vector_add: a is (N,)=({a.shape[0]},), so b must be ({a.shape[0]},); got {tuple(b.shape)}")
    if a.dtype not in DTYPES:
        raise ValueError(f"vector_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"vector_add: a is {a.dtype}, so b must be too; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"vector_add: a is on {a.device}, so b must be too; got {b.device}")
    if not (a.is_cuda or INTERPRET):
        raise ValueError(
            f"vector_add: a is on {a.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return vector_add(a, b)

    N = a.shape[0]
    out = torch.empty(N, dtype=OUT_DTYPE or a.dtype, device=a.device)
    if N > 0:
        large = N * a.element_size() >= LARGE_BYTES
        BLOCK = BLOCK_BYTES[large] // a.element_size()
        grid = (triton.cdiv(N, BLOCK),)
        vector_add_kernel[grid](a, b, out, N, a.stride(0), b.stride(0), BLOCK, num_warps=NUM_WARPS[large])
    return out.to(a.dtype) if INTERPRET else out
