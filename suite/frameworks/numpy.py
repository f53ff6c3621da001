"""NumPy on the CPU, the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from suite.frameworks.base import Adapter

if TYPE_CHECKING:
    import torch

FOREIGN = {"bfloat16": "int16", "float8_e4m3fn": "uint8"}
"""Dtypes that NumPy takes from ml_dtypes, each with an integer type of its width that torch also has."""


class Numpy(Adapter):
    name = "numpy"
    folder = "numpy_impls"
    rank = 5
    packages = ("numpy", "ml_dtypes", "torch")
    devices = ("cpu",)
    array = "numpy.ndarray"

    def to_native(self, tensor: torch.Tensor) -> Any:
        """The array over the same memory. bfloat16 and float8 become the types of ml_dtypes."""
        import ml_dtypes
        import torch

        name = str(tensor.dtype).removeprefix("torch.")
        if name in FOREIGN:
            return tensor.view(getattr(torch, FOREIGN[name])).numpy().view(getattr(ml_dtypes, name))
        return tensor.numpy()

    def is_array(self, result: Any) -> bool:
        """NumPy's functions return a result without axes as a scalar, such as `numpy.float32`."""
        import numpy as np

        return type(result) is np.ndarray or (isinstance(result, np.generic) and type(result) is result.dtype.type)

    def to_torch(self, array: Any) -> Any:
        import numpy as np
        import torch

        array = np.asarray(array)
        name = array.dtype.name
        if name in FOREIGN:
            return torch.from_numpy(array.view(FOREIGN[name])).view(getattr(torch, name))
        return torch.from_numpy(array)

    def form(self, array: Any) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
        """Read the form from NumPy: torch lacks some of its dtypes, and negative strides."""
        return array.shape, str(array.dtype), tuple(stride // array.itemsize for stride in array.strides)

    def poisoned(
        self, call: Callable[[], Any], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], device: torch.device
    ) -> Any:
        """Fill arrays of `np.empty` and `np.empty_like` with NaN; NumPy's own allocations are not reached."""
        from unittest.mock import patch

        import numpy as np

        from suite.frameworks._poison import poisoned

        with patch.multiple(np, empty=poisoned(np.empty), empty_like=poisoned(np.empty_like)):
            return call()

    def wait(self, result: Any) -> None:
        """Nothing to do: NumPy is synchronous."""


ADAPTER = Numpy()
