"""A gated linear unit's product by liger-kernel: a Triton program per row."""

from jaxtyping import Float
from liger_kernel.ops import LigerGELUMulFunction, LigerSiLUMulFunction
from torch import Tensor, float32

from triton_kernels._runtime.contract import check_gated

PEER = "liger-kernel"
REQUIRES = "cuda"
LONGEST = 65536


def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """out[i, j] = act(a[i, j]) * b[i, j]; act is silu, or gelu by its approximation with tanh.

    Raises ValueError for other shapes and dtypes, NotImplementedError for 16 bits, in which the library rounds act(a)
    before the product, and for rows that it refuses.
    """
    check_gated("silu_mul", a, b, activation=activation)
    if a.dtype != float32:
        raise NotImplementedError("silu_mul: in 16 bits liger-kernel rounds act(a) before the product")
    if a.shape[1] > LONGEST:
        raise NotImplementedError(f"silu_mul: liger-kernel takes rows of at most {LONGEST}; got {a.shape[1]}")
    if a.numel() == 0:
        return a.new_empty(a.shape)
    function = LigerSiLUMulFunction if activation == "silu" else LigerGELUMulFunction
    result: Tensor = function.apply(a, b)
    return result
