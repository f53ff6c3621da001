"""Matrix multiplication in CUDA with asynchronous copies (cp.async): three tiles are in flight."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32; products and sums in float32, in order of k.
    Precision: "ieee".
    Tail: tiles (128 x 256, or 64 x 128) that overhang are padded with zeros, element by element; outputs beyond the
    edge are not stored. Offsets are int64. Other tiles are copied four elements at a time if the operand is contiguous
    along m (or n) and its columns (or rows) start at multiples of 16 bytes.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for 16-bit types and tf32, which asynchronous copies cannot convert; build.CudaError if the
    launch fails.
    Source: see async_copies.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    if a.dtype != torch.float32 or precision != "ieee":
        raise NotImplementedError(
            f'matmul: asynchronous copies convert nothing: float32 and "ieee" only; got {a.dtype}, "{precision}"'
        )

    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matmul/async_copies", "matmul_async_copies", a.device,
            a, b, out, M, N, K, *a.stride(), *b.stride(),
        )  # fmt: skip
    return out
