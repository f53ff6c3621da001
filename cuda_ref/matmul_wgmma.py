"""Matrix multiplication in CUDA on Hopper's tensor cores: persistent blocks in clusters; also tf32 and float8."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._arguments import FLOAT8, check_float8_scales, check_matmul, check_sizes, tma_layout
from cuda_ref._kept import kept

REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
DTYPES = {**build.DTYPES, FLOAT8: 3}  # Dtype in common.cuh, and FLOAT8 in matmul_wgmma.cu


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n], in float8 times scale_a * scale_b.

    Shapes: a (M, K), b (K, N), any sizes up to 2^30, K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. One dimension of each operand must be contiguous (in float8 the one along K), the
    stride of the other one a multiple of 16 bytes, and the first element at a multiple of 16 bytes.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end. float32 with precision "tf32", if at least
    one operand is contiguous along K: factors are rounded to tf32, sums are float32. float8_e4m3fn, with a float32
    scale of shape () for each operand, gives bfloat16: the tensor cores keep 14 bits of sums over all of K ("fast"), or
    over 128 products each, which are then added in float32 ("promoted").
    Tail: TMA pads tiles that overhang the inputs with zeros and leaves out what overhangs the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes, scales and precisions, and for two devices; NotImplementedError for
    precision "ieee" of float32, for other strides, and on other devices; build.CudaError if the launch fails.
    Source: see matmul_wgmma.cu.
    """
    M, N, K = check_matmul(a, b, precision, DTYPES)
    check_float8_scales(a, scale_a, scale_b)
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    check_sizes((M, N, K), 30)
    out_dtype = torch.bfloat16 if a.dtype == FLOAT8 else a.dtype
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N, dtype=out_dtype)
    (a_mn, a_stride), (b_mn, b_stride) = tma_layout("a", a, k_dim=1), tma_layout("b", b, k_dim=0)
    strides = f"got strides {a.stride()} and {b.stride()}"
    if a_mn and b_mn and a.dtype == torch.float32:
        raise NotImplementedError(f"matmul: in tf32 a or b must be contiguous along K; {strides}")
    if (a_mn or b_mn) and a.dtype == FLOAT8:
        raise NotImplementedError(f"matmul: in float8 a and b must be contiguous along K; {strides}")
    out = a.new_empty(M, N, dtype=out_dtype)
    build.launch(
        "matmul_wgmma", "matmul_wgmma", a.device,
        a, b, out, M, N, K, a_mn, a_stride, b_mn, b_stride,
        scale_a, scale_b, precision == "promoted", DTYPES[a.dtype],
    )  # fmt: skip
    return out
