"""The contract of products over groups of rows: shapes, dtypes and devices of rows, weights and sizes.

Each function raises ValueError for arguments that break the contract, as those of `contract.py` do. The values of the
sizes are not checked, because a check on a GPU would make each call wait for it. No size is negative, and their sum is
the number of rows.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/experts.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .operands import FLOAT8, Array, check_arrays, check_devices, check_dims, check_shape, dtype_name
from .products import GROUP


def check_grouped_matmul(x: Array, weight: Array, sizes: Array) -> tuple[int, int, int, int]:
    """Checks rows x (T, K), the weights (E, K, N) of each expert, and sizes (E,), int32. Returns T, E, K and N."""
    operation = "grouped_matmul"
    T, K = check_dims(operation, "x", x, ("T", "K"))
    check_shape(operation, ("x", (T, K), ("T", "K")), "weight", weight, ("E", K, "N"))
    E, _, N = weight.shape
    _check_sizes(operation, ("weight", (E, K, N), ("E", "K", "N")), x, sizes, E)
    check_arrays(operation, {"x": x, "weight": weight})
    return T, E, K, N


def check_grouped_matmul_grad(x: Array, dy: Array, sizes: Array) -> tuple[int, int, int, int]:
    """Checks rows x (T, K), dy (T, N), and sizes (E,), int32. Returns T, E, K and N."""
    operation = "grouped_matmul_grad"
    T, K = check_dims(operation, "x", x, ("T", "K"))
    check_shape(operation, ("x", (T, K), ("T", "K")), "dy", dy, (T, "N"))
    (E,) = check_dims(operation, "sizes", sizes, ("E",))
    _check_sizes(operation, ("x", (T, K), ("T", "K")), x, sizes, E)
    check_arrays(operation, {"x": x, "dy": dy})
    return T, E, K, dy.shape[1]


def check_grouped_block_scaled_matmul(
    x: Array, scale_x: Array, weight: Array, scale_weight: Array, sizes: Array
) -> tuple[int, int, int, int]:
    """Checks codes x (T, K) and weights (E, N, K) of float8_e4m3fn, their scales of float32, and sizes (E,), int32.

    scale_x is (T, K/128) and scale_weight (E, N/128, K/128), rounded up. Returns T, E, K and N.
    """
    operation = "grouped_block_scaled_matmul"
    T, K = check_dims(operation, "x", x, ("T", "K"))
    check_shape(operation, ("x", (T, K), ("T", "K")), "weight", weight, ("E", "N", K))
    E, N, _ = weight.shape
    of_weight, groups = ("weight", (E, N, K), ("E", "N", "K")), -(-K // GROUP)
    check_shape(operation, ("x", (T, K), ("T", "K")), "scale_x", scale_x, (T, groups))
    check_shape(operation, of_weight, "scale_weight", scale_weight, (E, -(-N // GROUP), groups))
    codes, scales = {"x": x, "weight": weight}, {"scale_x": scale_x, "scale_weight": scale_weight}
    for arrays, expected in ((codes, FLOAT8), (scales, "float32")):
        for name, each in arrays.items():
            if dtype_name(each.dtype) != expected:
                raise ValueError(f"{operation}: {name} must be {expected}; got {dtype_name(each.dtype)}")
    _check_sizes(operation, of_weight, x, sizes, E)
    check_arrays(operation, codes, float8=True)
    check_arrays(operation, scales)
    check_devices(operation, "x", x, {"scale_x": scale_x})
    return T, E, K, N


def _check_sizes(
    operation: str, given: tuple[str, tuple[int, ...], tuple[str, ...]], x: Array, sizes: Array, E: int
) -> None:
    check_shape(operation, given, "sizes", sizes, (E,))
    if dtype_name(sizes.dtype) != "int32":
        raise ValueError(f"{operation}: sizes must be int32; got {dtype_name(sizes.dtype)}")
    check_devices(operation, "x", x, {"sizes": sizes})
    if x.shape[0] > 0 and E == 0:
        raise ValueError(f"{operation}: {x.shape[0]} rows need an expert; got sizes (0,)")
