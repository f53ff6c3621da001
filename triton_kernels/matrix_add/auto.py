"""Matrix addition in Triton: contiguous operands by `triton/flat`, others by `triton/grouped`."""

from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._runtime.launch import kept
from triton_kernels.matrix_add import flat, grouped

DETERMINISTIC = True


def config(a: Tensor, b: Tensor) -> str:
    """The kernel that `matrix_add` runs: `flat` or `grouped`."""
    return "flat" if flat.covers(a, b) else "grouped"


@kept
def matrix_add(a: Shaped[Tensor, "M N"], b: Shaped[Tensor, "M N"]) -> Shaped[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n], for operands of any strides.

    Shapes, dtypes and errors are those of `triton_kernels.matrix_add.matrix_add`.
    """
    return (flat if config(a, b) == "flat" else grouped).matrix_add(a, b)
