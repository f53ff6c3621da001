"""Sigmoid in Triton: one program computes a block of consecutive results of a tensor of any shape and strides."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_elementwise
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
BLOCK = 2**16 if INTERPRET else 1024  # elements per program


@triton.jit
def exponential(x):
    """exp(x) for x <= 0 in float32, within 2 ulp: exp(x) = 4^k exp(f) with |f| <= ln 2.

    tl.exp multiplies x by log2(e); at x = -87 the rounding of that product would cost 25 ulp. Here tl.exp gets the
    small f. ln 4 is split into two numbers so that k times the first is exact. Results below 2^-149 are 0.
    """
    x = tl.where(x < -110.0, -110.0, x)  # keeps NaN
    k = tl.floor(x * 0.7213475 + 0.5)  # 1 / ln 4
    f = tl.fma(k, -2.857213530660374e-06, tl.fma(k, -1.38629150390625, x))  # x - k ln 4
    power = tl.exp2(k)  # 2^k, exact
    return tl.exp(f) * power * power


@triton.jit
def sigmoid_of(x):
    """1 / (1 + exp(-x)) in float32, as z / (1 + z) with z = exp(x) for x < 0. Nothing overflows, and small results,
    including subnormal ones, keep their precision."""
    z = exponential(-tl.abs(x))
    return tl.div_rn(tl.where(x < 0.0, z, 1.0), 1.0 + z)


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, N, shape, strides, BLOCK: tl.constexpr):
    """One program computes BLOCK consecutive elements of the output. shape and strides of x start with the innermost
    dimension."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x_offs = tl.zeros((BLOCK,), tl.int64)
    rest = offs
    for d in tl.static_range(len(shape) - 1):
        x_offs += rest % shape[d] * strides[d]
        rest = rest // shape[d]
    x_offs += rest * strides[len(shape) - 1]
    x = tl.load(x_ptr + x_offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, sigmoid_of(x), mask=mask)


@kept
def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise.

    Shapes: any shape and strides. The output is contiguous.
    Dtypes: float32 (within 4 ulp, subnormal results included), float16, bfloat16; float32 inside, rounded once.
    Tail: elements beyond the last are masked. Offsets are int64, so x may have more than 2**31 elements.
    Errors: ValueError for other dtypes or devices.
    Source: W. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980, for the exponential.
    """
    check_elementwise("sigmoid", x)
    out = empty_output(x.shape, x.dtype, x.device)
    N = x.numel()
    if N > 0:
        view = x.view(-1) if x.is_contiguous() else x
        with device_of(x):
            launch(sigmoid_kernel, (triton.cdiv(N, BLOCK),), x, out, N, view.shape[::-1], view.stride()[::-1], BLOCK)
    return finished_output(out, x.dtype)
