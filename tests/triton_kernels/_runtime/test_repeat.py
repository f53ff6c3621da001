"""A compiled kernel launched again by the driver: its parameters, and what is left to Triton."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_kernels._runtime import repeat as _repeat
from triton_kernels._runtime.kept import NotRepeatable

GRID = (7,)


class FakeDriver:
    """Knows the sizes of a kernel's parameters, and reads what a launch gets."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.launches: list[list[bytes]] = []
        self.config: Any = None

    def cuFuncGetParamInfo(self, function: Any, index: Any, offset: Any, size: Any) -> int:  # noqa: N802
        if index.value >= len(self.sizes):
            return 1
        size._obj.value = self.sizes[index.value]
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: None) -> int:  # noqa: N802
        self.config = config._obj
        self.launches.append([ctypes.string_at(at, size) for at, size in zip(parameters._obj, self.sizes, strict=True)])
        return 0


def compiled(signature: dict[str, Any], **changes: Any) -> SimpleNamespace:
    metadata = {"global_scratch_size": 0, "profile_scratch_size": 0, "launch_cooperative_grid": False,
                "launch_pdl": False, "num_ctas": 1, "tensordesc_meta": None} | changes  # fmt: skip
    source = SimpleNamespace(signature=signature)
    return SimpleNamespace(metadata=SimpleNamespace(**metadata), src=source, function=1, packed_metadata=(8, 1, 4096))


def driver(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> FakeDriver:
    found = FakeDriver([*sizes, 8, 8])  # and two scratch buffers
    monkeypatch.setattr(_repeat, "driver", lambda: found)
    return found


def test_addresses_are_those_given_and_numbers_those_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = torch.ones(2), torch.ones(2)
    signature = {
        "x": "*fp32",
        "out": "*fp32",
        "N": "i32",
        "stride": "constexpr",
        "eps": "fp32",
        "sizes": ("i64", "i32"),
    }
    arguments = {"x": x, "out": out, "N": -5, "stride": 1, "eps": 0.5, "sizes": (2**40, 3)}
    fake = driver(monkeypatch, 8, 8, 4, 4, 8, 4)
    places = {x.data_ptr(): 0, out.data_ptr(): 2}
    issue = _repeat.repeatable(compiled(signature), GRID, arguments)(lambda tensor: places[tensor.data_ptr()])
    assert issue([111, 222, 333], 99) == 0
    assert issue([444, 222, 555], 0) == 0
    numbers = [struct.pack(f, n) for f, n in (("i", -5), ("f", 0.5), ("q", 2**40), ("i", 3), ("q", 0), ("q", 0))]
    addresses = [[struct.pack("q", each) for each in pair] for pair in ((111, 333), (444, 555))]
    assert fake.launches == [[*pair, *numbers] for pair in addresses]
    assert (list(fake.config.grid), list(fake.config.block), fake.config.shared_bytes) == ([7, 1, 1], [256, 1, 1], 4096)
    assert fake.config.stream is None


@pytest.mark.parametrize(
    "changes",
    [{"num_ctas": 2}, {"global_scratch_size": 1}, {"launch_pdl": True}, {"launch_cooperative_grid": True}],
    ids=lambda changes: next(iter(changes)),
)
def test_other_launches_are_left_to_triton(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    driver(monkeypatch, 4)
    with pytest.raises(NotRepeatable):
        _repeat.repeatable(compiled({"N": "i32"}, **changes), GRID, {"N": 1})(lambda tensor: 0)


def test_a_kernel_gets_its_scratch_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    x, scratch = torch.ones(2), torch.ones(3)
    fake = driver(monkeypatch, 8)
    places = {x.data_ptr(): 0, scratch.data_ptr(): 1}
    kernel = compiled({"x": "*fp32"}, global_scratch_size=128)
    issue = _repeat.repeatable(kernel, GRID, {"x": x}, scratch)(lambda tensor: places[tensor.data_ptr()])
    assert issue([111, 222], 0) == 0
    assert fake.launches == [[struct.pack("q", each) for each in (111, 222, 0)]]


@pytest.mark.parametrize("sizes", [(8,), (4, 8), ()], ids=["wider", "more", "fewer"])
def test_a_kernel_with_other_parameters_is_left_to_triton(monkeypatch: pytest.MonkeyPatch, sizes: Any) -> None:
    driver(monkeypatch, *sizes)
    with pytest.raises(NotRepeatable):
        _repeat.repeatable(compiled({"N": "i32"}), GRID, {"N": 1})(lambda tensor: 0)


def test_a_type_that_is_not_known_is_left_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, 2)
    with pytest.raises(NotRepeatable):
        _repeat.repeatable(compiled({"N": "bf16"}), GRID, {"N": 1.0})(lambda tensor: 0)


class FakeMap:
    """Triton's object around a TMA descriptor: 128 bytes at the end of a Python object."""


def test_a_tma_descriptor_is_made_once_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(descriptor: Any, metadata: Any) -> list[Any]:
        made.append(descriptor.base.data_ptr())
        return [FakeMap(), *descriptor.shape, *descriptor.strides]

    pytest.importorskip("triton.backends.nvidia.driver")
    monkeypatch.setattr("triton.backends.nvidia.driver.make_tensordesc_arg", make)
    monkeypatch.setattr(_repeat.TensorMaps, "_held", lambda self, tensor_map: (id(tensor_map), tensor_map))
    monkeypatch.setattr(_repeat, "LIMIT", 2)
    x = torch.ones(4, 8)
    descriptor = SimpleNamespace(base=x, shape=[4, 8], strides=[8, 1])
    driver(monkeypatch, 128, 4, 4, 8, 8).cuLaunchKernelEx = lambda *_: 0  # type: ignore[method-assign]
    kernel = compiled({"d": "tensordesc<fp32[4, 8]>"}, tensordesc_meta=[{}])
    issue = _repeat.repeatable(kernel, GRID, {"d": descriptor})(lambda tensor: 0)
    made.clear()
    for address in (1000, 2000, 1000, 2000, 3000, 1000):
        issue([address], 0)
    assert made == [1000, 2000, 3000, 1000]
