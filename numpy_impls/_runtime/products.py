"""The contract of products of quantized matrices: shapes, dtypes and devices of codes and scales.

Each function raises ValueError for arguments that break the contract, as those of `contract.py` do.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/products.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .operands import FLOAT8, Array, check_arrays, check_devices, check_dims, check_shape, dtype_name

GROUP = 128
"""Terms of K, and rows of b, that share a scale."""


def check_block_scaled_matmul(a: Array, scale_a: Array, b: Array, scale_b: Array) -> tuple[int, int, int]:
    """Checks codes a (M, K) and b (N, K) of float8_e4m3fn, scale_a (M, K/128) and scale_b (N/128, K/128) of float32.

    N/128 and K/128 are rounded up. Returns M, N and K.
    """
    operation = "block_scaled_matmul"
    M, K = shape = check_dims(operation, "a", a, ("M", "K"))
    check_shape(operation, ("a", shape, ("M", "K")), "b", b, ("N", K))
    N, groups = b.shape[0], -(-K // GROUP)
    check_shape(operation, ("a", shape, ("M", "K")), "scale_a", scale_a, (M, groups))
    check_shape(operation, ("b", (N, K), ("N", "K")), "scale_b", scale_b, (-(-N // GROUP), groups))
    for name, x, expected in (("a", a, FLOAT8), ("scale_a", scale_a, "float32"), ("scale_b", scale_b, "float32")):
        if dtype_name(x.dtype) != expected:
            raise ValueError(f"{operation}: {name} must be {expected}; got {dtype_name(x.dtype)}")
    check_arrays(operation, {"a": a, "b": b}, float8=True)
    check_arrays(operation, {"scale_a": scale_a, "scale_b": scale_b})
    check_devices(operation, "a", a, {"scale_a": scale_a})
    return M, N, K


def check_int4_matmul(x: Array, weight: Array, scale: Array, zero: Array | None = None) -> tuple[int, int, int]:
    """Checks x (M, K) and scale (N, K/128) of float16 or bfloat16, weight (N, K/2) and zero (N, K/128) of uint8.

    K/2 and K/128 are rounded up. Returns M, N and K.
    """
    operation = "int4_matmul"
    M, K = shape = check_dims(operation, "x", x, ("M", "K"))
    of_x, groups = ("x", shape, ("M", "K")), -(-K // GROUP)
    check_shape(operation, of_x, "weight", weight, ("N", -(-K // 2)))
    N = weight.shape[0]
    if dtype_name(x.dtype) not in ("float16", "bfloat16"):
        raise ValueError(f"{operation}: x must be float16 or bfloat16; got {dtype_name(x.dtype)}")
    for name, each, of in (("scale", scale, x.dtype), ("zero", zero, weight.dtype)):
        if each is not None:
            check_shape(operation, ("weight", tuple(weight.shape), ("N", "K/2")), name, each, (N, groups))
            if each.dtype != of:
                raise ValueError(f"{operation}: {name} must be {dtype_name(of)}; got {dtype_name(each.dtype)}")
    if dtype_name(weight.dtype) != "uint8":
        raise ValueError(f"{operation}: weight must be uint8, two codes a byte; got {dtype_name(weight.dtype)}")
    codes = {"weight": weight} if zero is None else {"weight": weight, "zero": zero}
    check_arrays(operation, {"x": x, "scale": scale})
    check_devices(operation, "x", x, codes)
    return M, N, K
