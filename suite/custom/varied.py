"""Other values of parameters, near those that they have."""

from __future__ import annotations

import torch

VARIED = "varied_parameters"
"""The family of inputs with random values for constant parameters, such as a norm's 1 and 0."""
SPREAD = 0.5


def is_constant(parameter: torch.Tensor) -> bool:
    """True if all elements are the same number."""
    if not parameter.is_floating_point() or parameter.numel() == 0 or parameter.is_meta:
        return False
    first = parameter.reshape(-1)[0]
    return bool(first.isfinite()) and bool((parameter == first).all())


def varied(parameter: torch.Tensor, seed: int) -> torch.Tensor:
    """Each element times a random number from 0.5 to 1.5; a random number from -0.5 to 0.5 instead of a 0.

    Signs stay, so that a variance stays positive.
    """
    source = torch.Generator().manual_seed(seed)
    moved = torch.rand(parameter.shape, generator=source, dtype=torch.float64).mul_(2.0).sub_(1.0).mul_(SPREAD)
    moved = moved.to(parameter.device)
    return torch.where(parameter == 0, moved, parameter * (1.0 + moved)).to(parameter.dtype)
