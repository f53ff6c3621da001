"""All ranks' rows times this rank's weight in CUDA: overlapped products, or one product after a gather.

A model of the times chooses (_plan.py). Overlapped products read w once for each rank, which is slower for few rows.
"""

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref.all_gather_matmul import wgmma as overlapped
from cuda_ref.all_gather_matmul._plan import is_overlapped
from cuda_ref.all_reduce._shares import all_gather
from cuda_ref.matmul import auto as product
from cuda_ref.matmul import wgmma

REQUIRES = "sm_90"


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order.

    Shapes, strides, devices and errors: those of matmul/wgmma.py. Dtypes: float16, bfloat16; NotImplementedError for
    float32, and for more than 16 ranks. `config` says what runs.
    """
    empty = _checked(x, w, precision)
    if empty is not None:
        return x.new_zeros(group.size() * x.shape[0], w.shape[1])
    if is_overlapped(x, w, group.size()):
        return overlapped.all_gather_matmul(x, w, group=group, precision=precision)
    return product.matmul(all_gather(x, group), w, precision=precision)


def config(x: Tensor, w: Tensor, *, group: dist.ProcessGroup, precision: str = "ieee") -> str:
    """`overlapped` or `gathered`, and the kernel that multiplies."""
    if _checked(x, w, precision) is not None:
        return ""
    if is_overlapped(x, w, group.size()):
        return f"overlapped; {wgmma.config(x, w, precision=precision)}"
    return f"gathered; {product.config(x.new_empty(group.size() * x.shape[0], x.shape[1]), w, precision=precision)}"


def _checked(x: Tensor, w: Tensor, precision: str) -> Tensor | None:
    """Raises the errors that `all_gather_matmul` documents. Returns a result if the product is empty or zero."""
    empty = wgmma.checked(x, w, None, None, precision)
    if x.element_size() != 2:
        raise NotImplementedError(f"all_gather_matmul: auto takes float16 and bfloat16; got {x.dtype}")
    return empty
