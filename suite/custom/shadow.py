"""The values of tensors before their last rounding, in float64, kept with the memory of the tensors.

All views of one memory share them: a write through one view is known in the others. They are freed with the memory.
"""

from __future__ import annotations

import torch

NAME = "_unrounded"


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of `tensor` before their rounding; None if nothing in its memory is known.

    An element that differs from its rounded kept value was written to by other means: its present value counts.
    """
    whole = _whole(tensor)
    if whole is None:
        return None
    kept = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return torch.where(kept.to(tensor.dtype) == tensor, kept, tensor.to(kept.dtype))


def is_known(tensor: torch.Tensor) -> bool:
    """True if something in the memory of `tensor` is known."""
    return _whole(tensor) is not None


def remember(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Keep `value` as that of `tensor` before its rounding. The rest of the memory keeps its known values."""
    whole = _whole(tensor)
    if whole is None:
        stored = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())  # type: ignore[call-overload]
        whole = stored.to(torch.complex128 if stored.is_complex() else torch.float64)
        setattr(tensor.untyped_storage(), NAME, (tensor.dtype, whole))
    whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(value)


def forget(tensor: torch.Tensor) -> None:
    """Forget the values in the memory of `tensor`, which has been written to."""
    setattr(tensor.untyped_storage(), NAME, None)


def _whole(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of the whole memory of `tensor`; None if they are of another type or size, or unknown."""
    memory = tensor.untyped_storage()
    dtype, found = getattr(memory, NAME, None) or (None, None)
    known_size = found is not None and found.numel() * tensor.element_size() == memory.nbytes()
    return found if known_size and dtype is tensor.dtype else None
