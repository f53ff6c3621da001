"""Finds and removes a part of the L2 cache that is set aside for persisting accesses.

Lines in that part survive the reading that evicts the rest of the cache, so a kernel that sets it aside would find its
inputs in a cold cache (llm.c, issue 851). Access policy windows, of a stream or of a launch, act only through it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

LIMIT_PERSISTING_L2_SIZE = 0x06
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE of cuda.h."""
STREAM_ACCESS_POLICY_WINDOW = 1
"""CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW."""
PERSISTING = 2
"""CU_ACCESS_PROPERTY_PERSISTING."""


class _Window(ctypes.Structure):
    """CUstreamAttrValue as a CUaccessPolicyWindow; the union has 64 bytes."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("num_bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("padding", ctypes.c_char * 32),
    )


class CarveOut:
    """The set-aside part of the L2 cache of the current CUDA context.

    `stream` returns the handle of the stream that calls use. The driver's functions are bound here, before any user's
    file is loaded. A context begins with a limit above 0 on some devices (9,830,400 bytes on an H100): it is set to 0,
    so that any other is a file's.
    """

    def __init__(self, stream: Callable[[], int], library: ctypes.CDLL | None = None) -> None:
        driver = library or ctypes.CDLL("libcuda.so.1")
        self._stream = stream
        self._get, self._set, self._reset = (
            driver.cuCtxGetLimit,
            driver.cuCtxSetLimit,
            driver.cuCtxResetPersistingL2Cache,
        )
        self._attribute = driver.cuStreamGetAttribute
        self._size, self._window = ctypes.c_size_t(0), _Window()
        self.remove()

    def found(self) -> str:
        """The setting that keeps a part of the cache aside; empty if there is none."""
        self._size.value = 0  # stays so on a device without such a limit
        self._get(ctypes.byref(self._size), LIMIT_PERSISTING_L2_SIZE)
        if self._size.value:
            return (
                f"it set {self._size.value:,} bytes of the L2 cache aside (cudaLimitPersistingL2CacheSize), "
                "which no eviction empties"
            )
        self._window.num_bytes = self._window.hit = 0
        self._attribute(ctypes.c_void_p(self._stream()), STREAM_ACCESS_POLICY_WINDOW, ctypes.byref(self._window))
        if self._window.num_bytes and self._window.hit == PERSISTING:
            return f"it set an access policy window of {self._window.num_bytes:,} persisting bytes on its stream"
        return ""

    def remove(self, *, anyway: bool = True) -> None:
        """Give the set-aside part back, and make its lines ordinary ones that an eviction replaces.

        `anyway`: reset the lines even if the limit is 0, since it may have been lowered meanwhile.
        """
        self._size.value = 0
        self._get(ctypes.byref(self._size), LIMIT_PERSISTING_L2_SIZE)
        is_set = self._size.value != 0
        if is_set:
            self._set(LIMIT_PERSISTING_L2_SIZE, ctypes.c_size_t(0))
        if is_set or anyway:
            self._reset()
