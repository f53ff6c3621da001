"""The parts that launchers on Hopper share: checks, copies for TMA, and the arguments of the scales."""

from typing import Any

from torch import Tensor

from cuda_ref._runtime.products import check_block_scaled_matmul
from cuda_ref.matmul._limits import check_sizes
from cuda_ref.matmul.wgmma import for_tma


def checked(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> tuple[int, int, int]:
    """Raises the errors that the launchers document. Returns M, N and K."""
    sizes = check_block_scaled_matmul(a, scale_a, b, scale_b)
    check_sizes(sizes, 30, "block_scaled_matmul")
    return sizes


def arguments(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, out: Tensor) -> tuple[Any, ...]:
    """The arguments that all kernels begin with. Operands that TMA cannot read are copied."""
    a, columns, (_, a_stride), (_, b_stride) = for_tma(a, b.mT)
    sizes = (*out.shape, a.shape[1])
    return (a, columns, out, *sizes, a_stride, b_stride, scale_a, scale_b, *scale_a.stride(), *scale_b.stride())
