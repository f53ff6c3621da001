"""The memory of tensors: comparing bits, copying with strides, gaps and guard bands, and address ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from suite.problem.guard_bands import BAND_BYTES, banded, view_between_bands
from suite.problem.outputs import located

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer type of so many bytes, for comparing bits."""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous tensors of one dtype are equal to the bit; any NaN equals any other NaN."""
    integer = INTEGERS[a.element_size()]
    if torch.equal(a.view(integer), b.view(integer)):
        return True
    return a.shape == b.shape and bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())


def first_difference(a: torch.Tensor, b: torch.Tensor, position: Callable[[tuple[int, ...]], str] = located) -> str:
    """The first position where two results of the same inputs differ to the bit, with both values.

    position: says where an index is.
    """
    integer = INTEGERS[a.element_size()]
    differs = (a.view(integer) != b.view(integer)) & ~(a.isnan() & b.isnan())
    flat = int(differs.reshape(-1).to(torch.uint8).argmax())
    at = position(tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), a.shape)))
    got, before = (float(t.reshape(-1)[flat]) for t in (a, b))
    return f"at {at} {got:.9g}, but {before:.9g} from a call with the same inputs before"


def copies_with_layout(
    tensors: Sequence[torch.Tensor], allocate: Callable[[int], torch.Tensor] | None = None
) -> tuple[torch.Tensor, ...]:
    """Copies in new memory, with the same offsets and strides; tensors that share memory share it in the copies too.

    `allocate` gives memory of so many bytes, as a tensor that is all of its storage.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for tensor in tensors:
        address = tensor.untyped_storage().data_ptr()
        if address not in storages:
            whole = whole_storage(tensor)
            copy = torch.empty_like(whole) if allocate is None else allocate(whole.nbytes).view(whole.dtype)
            storages[address] = copy.copy_(whole).untyped_storage()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copies.append(copy.set_(storages[address], tensor.storage_offset(), tensor.shape, tensor.stride()))
    return tuple(copies)


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All of the storage that `tensor` is a view of, as integers of the widest type that it is a multiple of."""
    storage = tensor.untyped_storage()
    everything = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    return everything.view(INTEGERS[math.gcd(8, storage.nbytes())])


def with_bands(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """`copies_with_layout`, with a guard band before and after each storage."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = banded(tensor).untyped_storage()
        copies.append(view_between_bands(storages[storage.data_ptr()], tensor))
    return tuple(copies)


def between_bands(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of a storage with guard bands that lie between them, in a vector."""
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    flat.set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return flat[BAND_BYTES // flat.element_size() : -BAND_BYTES // flat.element_size()]


def address_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of a contiguous tensor's first byte and of the one after its last; (0, 0) if it has none."""
    if tensor.numel() == 0:
        return 0, 0
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether `strides` are those of a C array, in elements. In a dimension of 1 or an empty array any will do."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step and 0 not in shape:
            return False
        step *= size
    return True
