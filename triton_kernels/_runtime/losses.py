"""The contract of losses: shapes, dtypes and devices of logits and targets.

Each function raises ValueError for arguments that break the contract, as those of `contract.py` do. A target is
`ignore_index`, or a column from 0 to V - 1. Any other is an error, but checking the values on a GPU would make each
call wait for it: implementations say what becomes of such a row, and read nothing outside the logits.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/losses.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .arguments import HAS_DEVICES, INDICES
from .operands import Array, check_arrays, check_dims, check_shape, dtype_name


def check_cross_entropy(logits: Array, target: Array, *, label_smoothing: float) -> tuple[int, int]:
    """Checks logits (T, V), a target for each row, and a smoothing from 0 to 1. Returns T and V."""
    operation = "cross_entropy"
    T, V = shape = check_dims(operation, "logits", logits, ("T", "V"))
    _check_target(operation, ("logits", shape, ("T", "V")), target, logits)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"{operation}: label_smoothing must be from 0 to 1; got {label_smoothing}")
    check_arrays(operation, {"logits": logits})
    return T, V


def _check_target(
    operation: str, given: tuple[str, tuple[int, ...], tuple[str, ...]], target: Array, like: Array
) -> None:
    """Checks a target for each row of `like`, which `given` describes as `check_shape` takes it."""
    name, shape, _ = given
    check_shape(operation, given, "target", target, shape[:1])
    if dtype_name(target.dtype) not in INDICES:
        raise ValueError(f"{operation}: target must be {' or '.join(INDICES)}; got {dtype_name(target.dtype)}")
    if HAS_DEVICES and target.device != like.device:
        place = f"{name} is on {like.device}, so target must be on {like.device}"
        raise ValueError(f"{operation}: {place}; got {target.device}")
