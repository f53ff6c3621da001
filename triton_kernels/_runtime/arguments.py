"""Arguments that the contract allows and the kernels of this folder do not take."""

from __future__ import annotations

import torch
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET

HAS_DEVICES = True
"""All arguments of a call must be on one device."""
INDICES = ("int64",)
"""Dtypes of arrays of indices."""


def check_supported(operation: str, tensors: dict[str, Tensor], precision: str | None) -> None:
    """Checks that tensors are plain, and on a GPU unless Triton's interpreter is on.

    Raises: ValueError on a CPU without the interpreter; NotImplementedError for tensors with torch's negative bit, and
    for those whose gradient is wanted.
    """
    for name, x in tensors.items():
        if x.is_neg():
            raise NotImplementedError(f"{operation}: {name} has torch's negative bit set; pass {name}.resolve_neg()")
        if x.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{operation}: {name} requires a gradient, and this kernel has no backward pass; "
                f"pass {name}.detach(), or use torch.no_grad()"
            )
    first, x = next(iter(tensors.items()))
    if not x.is_cuda and not INTERPRET:
        remedy = "pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module (Gluon has no interpreter)"
        raise ValueError(f"{operation}: {first} is on {x.device}; {remedy}")


def check_gpu(operation: str, name: str, x: Tensor) -> None:
    """Raises ValueError for x on a CPU, where Gluon's kernels do not run."""
    if not x.is_cuda:
        raise ValueError(f"{operation}: {name} is on {x.device}; pass CUDA tensors, Gluon has no interpreter")


def check_sizes(operation: str, M: int, N: int, K: int) -> None:
    """Raises NotImplementedError for M above 2^28, N above 2^26 or K above 2^30.

    M and N: the range of exact_quotient with the smallest tiles. K: kernels count it in 32 bits, a step beyond its end
    included.
    """
    if M > 2**28 or N > 2**26 or K > 2**30:
        limits = "M must be at most 2^28, N at most 2^26, K at most 2^30"
        raise NotImplementedError(f"{operation}: {limits}; got {(M, N, K)}")


def check_tensor_cores(a: Tensor, M: int, N: int, precision: str) -> None:
    """Raises NotImplementedError for products of float32, and for M or N above 2^27 or K above 2^30, as check_sizes."""
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: tensor cores cannot multiply float32 with precision="ieee"')
    sizes = (M, N, a.shape[1])
    if max(M, N) > 2**27 or a.shape[1] > 2**30:
        raise NotImplementedError(f"matmul: M and N must be at most 2^27, K at most 2^30; got {sizes}")


def check_head(D: int, head_dims: tuple[int, ...], sm_scale: float | None, operation: str = "attention") -> None:
    """Raises NotImplementedError unless D is one of head_dims and sm_scale is not negative."""
    if D not in head_dims:
        raise NotImplementedError(f"{operation}: D must be one of {head_dims}; got {D}")
    if sm_scale is not None and sm_scale < 0:
        raise NotImplementedError(f"{operation}: sm_scale must not be negative; got {sm_scale}")


def check_positions(operation: str, S_q: int, S_k: int) -> None:
    """Raises NotImplementedError for more than 2^30 queries or keys, whose positions kernels count in 32 bits."""
    if max(S_q, S_k) > 2**30:
        raise NotImplementedError(f"{operation}: S_q and S_k must be at most 2^30; got {S_q} and {S_k}")
