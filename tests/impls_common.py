"""Shared by the tests of jax_impls, torch_impls and numpy_impls: one call interface for the three frameworks.

On a machine with a GPU torch_impls is tested on the CPU and the GPU, jax_impls on the GPU only.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
ml_dtypes = pytest.importorskip("ml_dtypes")
np = pytest.importorskip("numpy")

CUDA = ["cuda"] if torch.cuda.is_available() else []
DEVICES = {
    "numpy": ["cpu"],
    "torch": ["cpu", *CUDA],
    "jax": ["cuda"] if jax.default_backend() == "gpu" else ["cpu"],
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ATTENTION = {
    "numpy": ["attention"],
    "torch": ["attention", "attention.cudnn", "attention.flash", "attention.math"],
    "jax": ["attention", "attention.cudnn"],
}
FUSED = ("torch_impls.attention.cudnn", "torch_impls.attention.flash", "jax_impls.attention.cudnn")


class Implementation:
    """One implementation on one device. Takes and returns torch tensors; checks that inputs stay unchanged."""

    def __init__(self, framework: str, file: str, device: str) -> None:
        self.framework, self.file, self.device = framework, file, device
        self.module = importlib.import_module(f"{framework}_impls.{file}")
        self.function: Callable[..., Any] = getattr(self.module, file.partition(".")[0])

    def __call__(self, *tensors: torch.Tensor, **arguments: Any) -> torch.Tensor:
        tensors = tuple(tensor.to(self.device) for tensor in tensors)
        copies = [tensor.clone() for tensor in tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            output = self.torch(self.function(*map(self.native, tensors), **arguments))
        for tensor, copy in zip(tensors, copies, strict=True):
            assert torch.equal(tensor.nan_to_num(7.0), copy.nan_to_num(7.0)), "an input was changed"
        assert output.is_contiguous()
        assert output.dtype == tensors[0].dtype
        assert output.device == tensors[0].device
        return output.cpu()

    def native(self, tensor: torch.Tensor) -> Any:
        if self.framework == "torch":
            return tensor
        if self.framework == "jax":
            compact = tensor.is_contiguous() or tensor.mT.is_contiguous() if tensor.ndim > 1 else tensor.is_contiguous()
            return jax.dlpack.from_dlpack(tensor if compact else tensor.contiguous())
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    def torch(self, array: Any) -> torch.Tensor:
        if self.framework == "torch":
            return array
        if self.framework == "jax":
            return torch.from_dlpack(array)
        assert isinstance(array, np.ndarray)
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def implementations(*files: str) -> list[Any]:
    """Test parameters: every framework that has one of `files`, on each of its devices."""
    found = []
    for framework, devices in DEVICES.items():
        for file in files:
            if file in ATTENTION[framework] or "attention" not in file:
                found += [
                    pytest.param((framework, file, device), id=f"{framework}-{file}-{device}") for device in devices
                ]
    return found


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    exponent = torch.floor(torch.log2(value.abs().clamp_min(info.smallest_normal)))
    return info.eps * torch.exp2(exponent)


def uncovered(implementation: Implementation, dtype: torch.dtype, keys: int) -> bool:
    """True if the implementation does not cover the case on its device."""
    if implementation.device == "cpu":
        return implementation.file == "attention.cudnn"
    fused = implementation.module.__name__ in FUSED
    return fused and (
        dtype == torch.float32 or (implementation.module.__name__ == "torch_impls.attention.cudnn" and keys == 1)
    )
