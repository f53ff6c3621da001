"""The product with K split over the ranks, in Triton: each product hides the copy of the one before."""

import torch
import torch.distributed as dist
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_split_matmul
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output, fitted
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels._runtime.symmetric import all_to_all
from triton_kernels.all_reduce._add import add_parts
from triton_kernels.matmul import GROUP_M, STEP_BYTES, TILE, matmul_kernel

DETERMINISTIC = True


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    The products of the other ranks' rows come first, this rank's last, which needs no copy.
    The kernel is that of matmul; another adds what the ranks sent.

    Shapes: x (ranks M, K), w (K, N), the same shapes on all ranks, any strides, also K = 0; the output is contiguous.
    Dtypes, precisions, tail: those of matmul. Products are rounded once, and added in float32.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for sizes that matmul
    refuses, and for more than 16 ranks.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory).
    """
    M, N, K = check_split_matmul(x, w, group.size(), precision=precision)
    check_sizes("matmul_reduce_scatter", M, N, K)
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() == 0:
        return finished_output(out, x.dtype)
    tile = fitted(TILE, M, N, K) or {"BLOCK_K": STEP_BYTES // x.element_size()}

    def product(rank: int, into: Tensor) -> None:
        rows = x[rank * M : (rank + 1) * M]
        with device_of(x):
            launch(
                matmul_kernel, lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                rows, w, into, None, None, M, N, K, *rows.stride(), *w.stride(),
                PRECISION=precision, GROUP_M=GROUP_M, **tile,
            )  # fmt: skip

    parts = all_to_all(product, (M, N), torch.float32 if INTERPRET else x.dtype, x.device, group)
    add_parts(parts, out)
    return finished_output(out, x.dtype)
