"""Sigmoid in CUDA by 16-byte accesses: adds packs, and a short device function for 16 bits, to the plain kernel."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_elementwise
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise.

    Shapes: any; the output is contiguous. torch first copies an input that is not contiguous, which costs a second pass
    over memory.
    Dtypes: float32 (within 1.96 ulp, subnormal results included), float16, bfloat16 (float32 inside, rounded once).
    Tail: the elements after the last pack of 16 bytes are computed one by one, and so is an input that does not start
    at a multiple of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other dtypes; build.CudaError if the launch fails.
    Source: see vectorized.cu.
    """
    check_elementwise("sigmoid", x)
    x = x.contiguous()
    out = torch.empty_like(x)
    N = out.numel()
    if N > 0:
        build.launch("sigmoid/vectorized", "sigmoid_vectorized", x.device, x, out, N, build.DTYPES[x.dtype])
    return out
