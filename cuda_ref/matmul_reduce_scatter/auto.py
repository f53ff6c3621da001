"""The product with K split over the ranks, in CUDA: overlapped products, or one product before the sum.

A model of the times chooses (_plan.py). Overlapped products read w once for each rank, which is slower for few rows.
"""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_split_matmul
from cuda_ref.all_reduce._shares import reduce_scatter
from cuda_ref.matmul import wgmma
from cuda_ref.matmul_reduce_scatter import wgmma as overlapped
from cuda_ref.matmul_reduce_scatter._plan import is_overlapped

REQUIRES = "sm_90"


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    Shapes, strides, devices and errors: those of matmul/wgmma.py. Dtypes: float16, bfloat16; NotImplementedError for
    float32, and for more than 16 ranks. `config` says what runs.
    """
    M, N, _ = check_split_matmul(x, w, group.size(), precision=precision)
    if _checked(x, w, precision) is not None:
        return x.new_zeros(M, N)
    if is_overlapped(x, w, group.size()):
        return overlapped.matmul_reduce_scatter(x, w, group=group, precision=precision)
    product = x.new_empty(x.shape[0], N)
    wgmma.run(wgmma.choose(x, w, precision), x, w, precision, out=product)
    return reduce_scatter(product, group)


def config(x: Tensor, w: Tensor, *, group: dist.ProcessGroup, precision: str = "ieee") -> str:
    """`overlapped` or `one product`, and the kernel that multiplies."""
    if _checked(x, w, precision) is not None:
        return ""
    if is_overlapped(x, w, group.size()):
        return f"overlapped; {wgmma.config(x[: x.shape[0] // group.size()], w, precision=precision)}"
    return f"one product; {wgmma.config(x, w, precision=precision)}"


def _checked(x: Tensor, w: Tensor, precision: str) -> Tensor | None:
    """Raises the errors that `matmul_reduce_scatter` documents. Returns a result if the product is empty or zero."""
    empty = wgmma.checked(x, w, None, None, precision)
    if x.element_size() != 2:
        raise NotImplementedError(f"matmul_reduce_scatter: auto takes float16 and bfloat16; got {x.dtype}")
    return empty
