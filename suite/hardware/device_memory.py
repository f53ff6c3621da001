"""Memory of a GPU at an address that the CUDA driver API gave."""

from __future__ import annotations

import ctypes
from typing import Any


class DeviceMemory:
    """Bytes at an address, in the form that torch accepts (`torch.as_tensor`). The tensor keeps this object."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def driver() -> Any:
    """Return the library of the driver API. Raises OSError if there is none."""
    return ctypes.CDLL("libcuda.so.1")
