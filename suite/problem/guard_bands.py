"""Guard bands: bytes before and after an array that no call may read or write.

The bytes are NaN in every floating-point type, float8 included, so reads beside an array show in the result. Writes are
found after the call.
"""

from __future__ import annotations

import torch

from suite.problem import far

BAND_BYTES = 4096
"""Bytes of each band. A multiple of every alignment that kernels or libraries assume of an array."""
PATTERN = 0xFF


def copy_between_bands(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the bytes of the tensor's storage to new memory between two bands; between far slices nothing is copied."""
    storage = tensor.untyped_storage()
    given = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    block = far.memory_like(tensor, len(given) + 2 * BAND_BYTES)
    block[:BAND_BYTES] = PATTERN
    block[-BAND_BYTES:] = PATTERN
    slices, to = (far.slices(each) for each in (tensor, view_between_bands(block.untyped_storage(), tensor)))
    if slices is not None and to is not None:
        to.copy_(slices)
    else:
        block[BAND_BYTES:-BAND_BYTES].copy_(given)
    return block


def view_between_bands(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return the tensor that lies in `storage`, which has bands, at the place and with the strides of `like`."""
    view = torch.empty(0, dtype=like.dtype, device=like.device)
    offset = like.storage_offset() + BAND_BYTES // like.element_size()
    return view.set_(storage, offset, like.shape, like.stride())


def has_bands(tensor: torch.Tensor) -> bool:
    """True if a contiguous tensor fills its storage up to the bands."""
    content = tensor.numel() * tensor.element_size()
    begin = tensor.storage_offset() * tensor.element_size()
    return bool(begin == BAND_BYTES and tensor.untyped_storage().nbytes() == content + 2 * BAND_BYTES)


def bands_intact(tensor: torch.Tensor) -> bool:
    """True if nothing was written to the bands around the tensor's storage, which must have bands."""
    storage = tensor.untyped_storage()
    block = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    bands = torch.cat((block[:BAND_BYTES], block[-BAND_BYTES:]))
    return bool((bands == PATTERN).all())
