"""Sigmoid in CUDA: a device function for float32 that is accurate, one for 16 bits that is short."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True


def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise.

    Shapes: any; the output is contiguous. An input that is not contiguous is first copied by torch, so it costs two
    passes over memory.
    Dtypes: float32 (within 1.96 ulp, subnormal results included), float16, bfloat16 (float32 inside, rounded once).
    Tail: what is left after the last pack of 16 bytes is taken one by one; so is an input that does not start on a
    multiple of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU, for agreement only, the same kernel emulated.
    Errors: ValueError for other dtypes; build.CudaError if the launch fails.
    Source: see sigmoid.cu.
    """
    if x.dtype not in build.DTYPES:
        raise ValueError(f"sigmoid: x must be float32, float16 or bfloat16; got {x.dtype}")

    x = x.contiguous()
    out = torch.empty_like(x)
    N = out.numel()
    if N > 0:
        build.launch("sigmoid", "sigmoid", x.device, x, out, N, build.DTYPES[x.dtype])
    return out
