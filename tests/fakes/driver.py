"""libcuda in Python."""

from __future__ import annotations


class FakeDriver:
    """One device, and an older driver without the attribute for clusters. `init` is what cuInit returns."""

    def __init__(self, init: int = 0) -> None:
        self.init = init

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count: object) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: object, index: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetName(self, name: object, size: int, device: object) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, memory: object, device: object) -> int:  # noqa: N802
        memory._obj.value = 143 << 30
        return 0

    def cuDeviceGetAttribute(self, value: object, number: int, device: object) -> int:  # noqa: N802
        known = {16: 132, 36: 3_201_000, 37: 6144, 38: 60 << 20, 75: 9, 76: 0, 13: 1_980_000, 97: 227 << 10}
        if number == 120:
            return 1
        value._obj.value = known.get(number, 1)
        return 0
