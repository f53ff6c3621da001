"""A linear layer with a sigmoid in Gluon for Hopper: adds the bias and the sigmoid to the kernel of matmul/gluon.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_gpu, check_sizes
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.launch import device_of, kept
from triton_kernels.matmul._configs_gluon import tuning_space  # noqa: F401
from triton_kernels.matmul._gluon_operands import copies
from triton_kernels.matmul.gluon import gluon_matmul_kernel, is_stored_by_tma, launch_product  # noqa: F401

REQUIRES = "sm_90"


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out = sigma(x weight^T + bias).

    Shapes: x (M, K), weight (N, K), bias (N,), K at least 1. The output is contiguous.
    Strides: any; a kernel first copies operands that TMA cannot read, as in matmul/gluon.py.
    Dtypes: float16, bfloat16; float32 inside, rounded once at the end.
    Tail: TMA reads zeros beyond the edges and does not write there.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for float32, for K = 0, for
    M or N above 2^26, for K above 2^30, and for a GPU other than Hopper.
    Source: matmul/gluon.py.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_gpu("linear_sigmoid", "x", x)
    check_sizes("linear_sigmoid", M, N, K)
    if torch.cuda.get_device_capability(x.device)[0] != 9:
        raise NotImplementedError("linear_sigmoid: wgmma needs a Hopper GPU (compute capability 9.0)")
    if x.element_size() != 2 or K == 0 or M > 2**26:
        raise NotImplementedError(
            f"linear_sigmoid: written for 16 bits, K of at least 1 and M of at most 2^26; got {x.dtype}, K={K}, M={M}"
        )
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if out.numel() > 0:
        with device_of(x):
            launch_product(x, weight.t(), out, None, None, "ieee", bias.contiguous())
    return out


def config(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> str:
    """The kernels that `linear_sigmoid` runs: `pad_both; gluon; pad`, with copies of what TMA cannot read or store."""
    if x.numel() * weight.numel() == 0:
        return ""
    stored = is_stored_by_tma(x, weight.shape[0])
    return "; ".join([*copies(x, weight.t()), "gluon", *([] if stored else ["pad"])])
