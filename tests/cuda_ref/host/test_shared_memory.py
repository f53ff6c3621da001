"""Static shared memory counts against 48 KB, unless the launcher has allowed the dynamic memory beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cuda_ref import build

LIMITS = Path(__file__).with_name("limits.cu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_static_memory_does_not_count_once_dynamic_memory_is_allowed(device: str) -> None:
    if missing := build.missing(device):
        pytest.skip(missing)
    out = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        build.launch(LIMITS, "static_and_dynamic", out.device, out, 0)
    build.launch(LIMITS, "static_and_dynamic", out.device, out, 1)
    assert out.item() == 5
