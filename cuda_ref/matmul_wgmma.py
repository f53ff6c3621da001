"""Matrix multiplication in CUDA, on Hopper's tensor cores: copies by TMA, products by wgmma."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
DTYPES = {**build.DTYPES, torch.float8_e4m3fn: 3}  # Dtype in common.cuh, and FLOAT8


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n], of float8 times scale_a scale_b.

    Shapes: a (M, K), b (K, N), any sizes up to 2^30, K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. One dimension of an operand, either of them, must be contiguous, of float8 the one
    along K, the stride of the other a multiple of 16 bytes, and the first element must lie at a multiple of 16 bytes.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end; float32 with precision "tf32" if one
    operand, at least, is contiguous along K: factors are rounded to tf32, sums are float32. float8_e4m3fn, with a
    float32 scale of shape () for each of the two, gives bfloat16: the tensor cores keep 14 bits of sums, of all of them
    ("fast"), or of 128 products each, which are then added in float32 ("promoted").
    Tail: TMA fills with zeros what overhangs the inputs and does not store what overhangs the output.
    Devices: CUDA, compute capability 9.0.
    Errors: ValueError for other shapes, dtypes, scales and precisions, and for two devices; NotImplementedError for
    precision "ieee" of float32, for other strides, and on other devices; build.CudaError if the launch fails.
    Source: see matmul_wgmma.cu.
    """
    if a.dim() != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.dim() != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    float8 = a.dtype == torch.float8_e4m3fn
    wide = ("ieee", "tf32") if a.dtype == torch.float32 else ("ieee",)
    if precision not in (("promoted", "fast") if float8 else wide):
        allowed = '"promoted" or "fast" for float8' if float8 else '"ieee", or "tf32" for float32'
        raise ValueError(f'matmul: precision must be {allowed}; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.dtype, tuple(scale.shape), scale.device)
        expected = (torch.float32, (), a.device) if float8 else None
        if found != expected:
            raise ValueError(f"matmul: a is {a.dtype}, so {name} must be {expected}; got {found}")
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    if max(M, N, K) > 2**30:
        raise NotImplementedError(f"matmul: M, N and K must be at most 2^30; got {(M, N, K)}")

    out_dtype = torch.bfloat16 if float8 else a.dtype
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N, dtype=out_dtype)
    a_across, a_stride = _layout("a", a, k_dim=1)
    b_across, b_stride = _layout("b", b, k_dim=0)
    if a_across and b_across and a.dtype == torch.float32:
        raise NotImplementedError(
            f"matmul: in tf32 a or b must be contiguous along K; got strides {a.stride()} and {b.stride()}"
        )
    if (a_across or b_across) and float8:
        raise NotImplementedError(
            f"matmul: in float8 a and b must be contiguous along K; got strides {a.stride()} and {b.stride()}"
        )
    out = a.new_empty(M, N, dtype=out_dtype)
    build.launch(
        "matmul_wgmma", "matmul_wgmma", a.device,
        a, b, out, M, N, K, a_across, a_stride, b_across, b_stride,
        scale_a, scale_b, precision == "promoted", DTYPES[a.dtype],
    )  # fmt: skip
    return out


def _layout(name: str, x: Tensor, k_dim: int) -> tuple[bool, int]:
    """Whether x is contiguous across K (else along K), and the stride of its other dimension, as TMA can copy it."""
    wide = 16 // x.element_size()
    for across in (False, True):
        inner = 1 - k_dim if across else k_dim
        size, stride = x.shape[inner], x.stride(1 - inner)
        if x.shape[1 - inner] == 1:  # then any will do
            stride = -(-size // wide) * wide
        if (x.stride(inner) == 1 or size == 1) and stride % wide == 0 and stride >= size and x.data_ptr() % 16 == 0:
            return across, stride
    raise NotImplementedError(
        f"matmul: TMA needs {name} contiguous in one dimension, with rows a multiple of {wide} elements apart, that "
        f"start at multiples of 16 bytes; got strides {x.stride()} at an address that is {x.data_ptr() % 16} beyond one"
    )
