"""The fused attention kernels need rows at multiples of 16 bytes; they do not check it themselves."""

from __future__ import annotations

import pytest
import torch

from torch_impls.attention._sdpa import aligned, check_alignment


class OnGpu(torch.Tensor):
    """Host memory that claims to be on a GPU."""

    is_cuda = True


def rows(distance: int, shift: int = 0, D: int = 64) -> torch.Tensor:
    """(1, 2, 3, D) in bfloat16, its rows `distance` elements apart, `shift` elements after a multiple of 16 bytes."""
    memory = torch.empty(6 * distance + shift + 64, dtype=torch.bfloat16)
    return memory[shift:].as_strided((1, 2, 3, D), (6 * distance, 3 * distance, distance, 1), shift)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (rows(64), True),
        (rows(72), True),
        (rows(65), False),
        (rows(64, shift=1), False),
        (rows(64)[:, :, :1].expand(1, 2, 3, 64), True),
        (rows(65)[:, :1, :1], True),
        (rows(60, D=60), True),
    ],
    ids=["dense", "gaps of 8", "gaps of 1", "shifted", "repeated", "a single row", "PyTorch pads"],
)
def test_rows_at_multiples_of_16_bytes(x: torch.Tensor, expected: bool) -> None:
    assert aligned(x) is expected


def test_the_error_has_the_strides() -> None:
    good, bad = rows(64).as_subclass(OnGpu), rows(65).as_subclass(OnGpu)
    check_alignment("FlashAttention", good, good, good)
    with pytest.raises(NotImplementedError, match=r"FlashAttention needs k's rows.*strides \(390, 195, 65, 1\)"):
        check_alignment("FlashAttention", good, bad, good)
