"""The contract of losses: shapes, dtypes and devices of logits and targets.

Each function raises ValueError for arguments that break the contract, as those of `contract.py` do. A target is
`ignore_index`, or a column from 0 to V - 1. Any other value is an error, which is not checked here, because a check on
a GPU would make each call wait for it. Each implementation documents its result, and reads nothing outside the logits.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/losses.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .arguments import INDICES
from .operands import Array, check_arrays, check_devices, check_dims, check_shape, dtype_name


def check_cross_entropy(logits: Array, target: Array, *, label_smoothing: float) -> tuple[int, int]:
    """Checks logits (T, V), a target for each row, and a smoothing from 0 to 1. Returns T and V."""
    operation = "cross_entropy"
    T, V = shape = check_dims(operation, "logits", logits, ("T", "V"))
    _check_target(operation, ("logits", shape, ("T", "V")), target, logits)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"{operation}: label_smoothing must be from 0 to 1; got {label_smoothing}")
    check_arrays(operation, {"logits": logits})
    return T, V


def check_linear_cross_entropy(x: Array, weight: Array, target: Array) -> tuple[int, int, int]:
    """Checks features x (T, H), the weight (V, H) of the last layer, and a target for each row. Returns T, V and H."""
    operation = "linear_cross_entropy"
    T, H = shape = check_dims(operation, "x", x, ("T", "H"))
    given = ("x", shape, ("T", "H"))
    check_shape(operation, given, "weight", weight, ("V", H))
    _check_target(operation, given, target, x)
    check_arrays(operation, {"x": x, "weight": weight})
    return T, weight.shape[0], H


def _check_target(
    operation: str, given: tuple[str, tuple[int, ...], tuple[str, ...]], target: Array, like: Array
) -> None:
    """Checks that there is a target for each row of `like`. given: `like`, described as `check_shape` takes it."""
    name, shape, _ = given
    check_shape(operation, given, "target", target, shape[:1])
    if dtype_name(target.dtype) not in INDICES:
        raise ValueError(f"{operation}: target must be {' or '.join(INDICES)}; got {dtype_name(target.dtype)}")
    check_devices(operation, name, like, {"target": target})
