"""NumPy on the CPU: the line that a person without a GPU knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from suite.frameworks.base import Adapter

if TYPE_CHECKING:
    import torch

FOREIGN = {"bfloat16": "int16", "float8_e4m3fn": "uint8"}
"""Types that NumPy has from ml_dtypes, each with one of the same width that it shares with torch."""


class Numpy(Adapter):
    name = "numpy"
    folder = "numpy_impls"
    rank = 5
    packages = ("numpy", "ml_dtypes", "torch")
    devices = ("cpu",)
    array = "numpy.ndarray"

    def to_native(self, tensor: torch.Tensor) -> Any:
        """NumPy has no bfloat16 or float8 of its own; ml_dtypes gives it one with the same bits."""
        import ml_dtypes
        import torch

        name = str(tensor.dtype).removeprefix("torch.")
        if name in FOREIGN:
            return tensor.view(getattr(torch, FOREIGN[name])).numpy().view(getattr(ml_dtypes, name))
        return tensor.numpy()

    def is_array(self, result: Any) -> bool:
        import numpy as np

        return type(result) is np.ndarray

    def to_torch(self, array: Any) -> Any:
        import torch

        name = array.dtype.name
        if name in FOREIGN:
            return torch.from_numpy(array.view(FOREIGN[name])).view(getattr(torch, name))
        return torch.from_numpy(array)

    def form(self, array: Any) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
        """NumPy has dtypes and negative strides that torch has not."""
        return array.shape, str(array.dtype), tuple(stride // array.itemsize for stride in array.strides)

    def poisoned(self, call: Callable[[], Any], shape: tuple[int, ...], dtype: str, device: torch.device) -> Any:
        """What `np.empty` and `np.empty_like` return, called by these names; NumPy's own functions go other ways."""
        from unittest.mock import patch

        import numpy as np

        from suite.frameworks._poison import poisoned

        with patch.multiple(np, empty=poisoned(np.empty), empty_like=poisoned(np.empty_like)):
            return call()

    def wait(self, result: Any) -> None:
        """NumPy returns when it is done."""


ADAPTER = Numpy()
