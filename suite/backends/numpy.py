"""NumPy on the CPU: the line that a person without a GPU knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suite.backends.base import Backend

if TYPE_CHECKING:
    import torch


class Numpy(Backend):
    name = "numpy"
    folder = "numpy_impls"
    packages = ("numpy", "ml_dtypes", "torch")
    devices = ("cpu",)

    def to_native(self, tensor: torch.Tensor) -> Any:
        """NumPy has no bfloat16 of its own; ml_dtypes gives it one with the same bits."""
        import ml_dtypes
        import torch

        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    def to_torch(self, array: Any) -> Any:
        import ml_dtypes
        import numpy as np
        import torch

        if not isinstance(array, np.ndarray):
            return array
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def wait(self, result: Any) -> None:
        """NumPy returns when it is done."""


BACKEND = Numpy()
