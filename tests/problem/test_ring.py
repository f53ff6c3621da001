"""Long ranges of GPU addresses over one block: by a driver that maps files on a CPU, and on a GPU."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from fakes.mapped_driver import MappedDriver, host_memory
from judging import CPU
from thinning import crossed, named

from suite import frameworks, ops
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.external import shared_memory
from suite.implementations import builtin
from suite.problem import far, layouts, ring
from validation.mutation.memory import offsets_of


def use(driver: MappedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the driver API, and give operands on the CPU the memory of a GPU."""
    monkeypatch.setattr(ring, "driver", lambda: driver)
    monkeypatch.setattr(ring, "DeviceMemory", host_memory)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(far, "is_cheap", lambda device_type: True)
    monkeypatch.setattr(far, "reserve", lambda nbytes, device, block: ring.reserve(nbytes, block, device))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MappedDriver]:
    found = MappedDriver()
    use(found, monkeypatch)
    yield found
    gc.collect()
    assert not found.ranges, "a range was not freed"
    assert not found.handles


@pytest.mark.parametrize(
    ("dtype", "shape"),
    crossed(named([torch.float32, torch.bfloat16, torch.int64]), named([(31,), (5, 7), (2, 3, 4, 5), (512, 3)])),
)
def test_slices_have_places_of_their_own(driver: MappedDriver, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    drawn = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)
    for axis in range(len(shape)):
        placed = far.place(drawn, axis)
        assert torch.equal(placed, drawn)
        if shape[axis] > 1:
            assert (shape[axis] - 1) * placed.stride(axis) >= far.REACH
            assert far.block_of(placed) == ring.LEAST_BYTES


def test_what_lies_between_is_nan_and_so_is_what_lies_before(driver: MappedDriver) -> None:
    placed = far.place(torch.ones(5, 7), 0)
    between = placed.as_strided((4, placed.stride(0) - 7), (placed.stride(0), 1), 7)[:, :1024]
    assert between.isnan().all()
    before = host_memory(placed.data_ptr() - 4 * far.REACH, 4096)
    assert (before == ring.PATTERN).all()


def test_a_block_that_elements_fill_by_half_is_not_a_power_of_two() -> None:
    for used in (0, 1, 33 << 20, 34 << 20, 1 << 30, 5 << 30):
        block = ring.block_bytes(used)
        assert block >= max(2 * used, ring.LEAST_BYTES)
        assert block // ring.GRANULE % 2 == 1


def test_a_large_slice_has_a_larger_block(driver: MappedDriver) -> None:
    placed = far.place(torch.arange(3.0).view(3, 1).expand(3, 5 << 20), 0)
    assert far.block_of(placed) > 120 << 20
    assert placed[:, ::4096].equal(torch.arange(3.0).view(3, 1).expand(3, 1280))


def test_other_views_with_gaps_are_no_such_operands() -> None:
    assert far.block_of(torch.empty(1).expand(3, 4)) == 0
    assert far.block_of(torch.empty(3 << 21).view(3, -1)[:, :5]) == 0


@pytest.mark.parametrize("name", ["vector_add", "matmul", "softmax"])
def test_buffers_with_bands_and_kernels_with_int_offsets(driver: MappedDriver, name: str) -> None:
    op, read = ops.get(name), offsets_of(32, signed=True)
    function, adapter = builtin.find(name, "torch").function(), frameworks.get("torch")
    cases = {each: case for each, case in op.telling_cases("float32", "ieee").items() if layouts.is_far(each)}
    problems = Problems(cases, lambda case: Problem(case, 0, CPU))
    found = probe(lambda case: function, adapter, problems)
    assert (found.reason, found.passed) == ("", tuple(cases))
    found = probe(lambda case: lambda *args, **named: function(*map(read, args), **named), adapter, problems)
    assert found.reason.startswith("not finite")


def test_another_process_maps_the_same_bytes(driver: MappedDriver) -> None:
    assert ring.is_available.__wrapped__(CPU)
    memory, descriptor = ring.reserve_shared(5 * ring.LEAST_BYTES, ring.LEAST_BYTES, CPU)
    block = shared_memory.Block(5 * ring.LEAST_BYTES, ring=ring.LEAST_BYTES)
    (there,) = shared_memory.attach([block], [descriptor], CPU)
    memory[4 * ring.LEAST_BYTES + 3] = 5
    assert there[3] == there[2 * ring.LEAST_BYTES + 3] == 5
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(descriptor)


@pytest.mark.parametrize("name", ["cuMemCreate", "cuMemMap", "cuMemExportToShareableHandle", "cuMemSetAccess"])
def test_a_driver_that_refuses_has_no_rings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(MappedDriver(refused=name), monkeypatch)
    assert not ring.is_available.__wrapped__(CPU)
    with pytest.raises(OSError, match=f"{name} failed with CUDA error 801"):
        ring.reserve_shared(ring.LEAST_BYTES, ring.LEAST_BYTES, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["vector_add", "softmax", "sum"])
def test_far_operands_take_little_memory_of_a_gpu(name: str) -> None:
    gpu = torch.device("cuda", torch.cuda.current_device())
    assert ring.is_available(gpu)
    op, read = ops.get(name), offsets_of(32, signed=True)
    function, adapter = builtin.find(name, "torch").function(), frameworks.get("torch")
    told = op.telling_cases("float32", "ieee", device_type="cuda")
    cases = {each: case for each, case in told.items() if layouts.is_far(each)}
    free, _ = torch.cuda.mem_get_info()
    problems = Problems(cases, lambda case: Problem(case, 0, gpu))
    found = probe(lambda case: function, adapter, problems)
    assert (found.reason, found.passed) == ("", tuple(cases))
    assert free - torch.cuda.mem_get_info()[0] < 4 << 30
    found = probe(lambda case: lambda *args, **named: function(*map(read, args), **named), adapter, problems)
    assert found.reason.startswith("not finite")
