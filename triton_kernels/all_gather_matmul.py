"""All ranks' rows times this rank's weight in Triton: one product a rank, in the order in which the rows arrive."""

import torch.distributed as dist
import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import empty_output, finished_output, fitted
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels._runtime.symmetric import as_they_arrive
from triton_kernels.matmul import GROUP_M, STEP_BYTES, TILE, matmul_kernel

DETERMINISTIC = True


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order.

    The product of this rank's own rows hides the copy of the next rank's, and so on. The kernel is that of matmul.

    Shapes: x (M, K), the same on all ranks, w (K, N), any strides, K = 0 included; the output is contiguous.
    Dtypes, precisions, tail: those of matmul.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for sizes that matmul
    refuses, and for more than 16 ranks.
    Source: asynchronous tensor parallelism in PyTorch (symmetric memory).
    """
    check_matmul(x, w, precision=precision)
    (M, K), N = x.shape, w.shape[1]
    check_sizes("all_gather_matmul", group.size() * M, N, K)
    out = empty_output((group.size() * M, N), x.dtype, x.device)
    if out.numel() == 0:
        return finished_output(out, x.dtype)
    tile = fitted(TILE, M, N, K) or {"BLOCK_K": STEP_BYTES // x.element_size()}

    def product(rank: int, rows: Tensor) -> None:
        with device_of(x):
            launch(
                matmul_kernel, lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                rows, w, out[rank * M : (rank + 1) * M], None, None, M, N, K, *rows.stride(), *w.stride(),
                PRECISION=precision, GROUP_M=GROUP_M, **tile,
            )  # fmt: skip

    if K > 0:
        as_they_arrive([x], product, group)
    else:
        for rank in range(group.size()):
            product(rank, x)
    return finished_output(out, x.dtype)
