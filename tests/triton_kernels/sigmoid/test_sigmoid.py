"""Accuracy of the Triton sigmoids where the result is near 0 or 1."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("module", "float32_ulps"), [("sigmoid", 4), ("sigmoid.fast_exponential", 2)], ids=["plain", "fast_exponential"]
)
def test_sigmoid_at_the_ends(module: str, float32_ulps: float, name: str, device: str) -> None:
    """Infinities, NaN and results below the smallest normal number, within 0.55 ulp of 16 bits."""
    sigmoid = import_module(f"triton_kernels.{module}").sigmoid
    dtype = getattr(torch, name)
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0], dtype=dtype, device=device)
    assert sigmoid(special)[:2].tolist() == [1.0, 0.0]
    assert sigmoid(special)[2].isnan()
    assert sigmoid(special)[3:].tolist() == [0.5, 0.5]

    x = torch.cat([torch.linspace(-110, 110, 200_001), torch.linspace(-6, 6, 200_001)]).to(dtype).to(device)
    truth = torch.sigmoid(x.double())
    _, exponent = torch.frexp(truth)
    info = torch.finfo(dtype)
    ulp = torch.exp2(exponent.double()).mul(info.eps / 2).clamp(min=info.smallest_normal * info.eps)
    error = ((sigmoid(x).double() - truth).abs() / ulp).max().item()
    assert error <= (float32_ulps if dtype == torch.float32 else 0.55)
