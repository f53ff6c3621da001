"""Reads CUPTI's activity records from its buffers as NumPy tables.

cupti-python converts each record to a Python object, which takes 35 us for a kernel's record on an H200's host: a third
of the time of a sample. This module reads all records of a kind at once from the same buffers. It finds the fields that
the recorder needs at the offsets that cupti-python's types declare, and uses cupti-python for everything else.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.timing.intervals import Activity, Launch, NoRecorderError

LAYOUTS = {
    "CONCURRENT_KERNEL": "activity_kernel",
    "KERNEL": "activity_kernel",
    "MEMCPY": "activity_memcpy",
    "MEMCPY2": "activity_memcpy_pto_p",
    "MEMSET": "activity_memset",
}
"""Kinds of activity, and the names of their record types without the version number that cupti-python appends."""
REQUIRED_FIELDS = {"kind": "<u4", "start": "<u8", "end": "<u8"}
"""The fields of every record, with their types."""
OPTIONAL_FIELDS = {"device_id": "<u4", "graph_node_id": "<u8"}
"""Further fields, which are read if the version of the record declares them."""
KERNEL_FIELDS = {
    "name": "<u8",
    **dict.fromkeys((f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"), "<i4"),
    "registers_per_thread": "<u2",
    "static_shared_memory": "<i4",
    "dynamic_shared_memory": "<i4",
}
"""Further fields of kernel records. `name` is the address of a C string."""
UNKNOWN_DEVICE = -1
RECORD = np.dtype(
    [
        ("kind", "<u4"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("name", object),
        ("in_graph", bool),
        ("device", "<i4"),
        ("grid", "<i4", 3),
        ("block", "<i4", 3),
        ("registers", "<i4"),
        ("shared_bytes", "<i4"),
    ]
)
"""One record in a table. `start` and `end` are in nanoseconds of CUPTI's clock, `device` is the device's index in the
CUDA program. Only kernels have `name`, `grid`, `block`, `registers` and `shared_bytes`."""
Table = NDArray[Any]
"""An array of RECORD."""
Begins = Sequence[int] | slice
"""Byte offsets of records in a buffer. Those of equally long ones are a slice, which NumPy reads without copying."""

_KIND = struct.Struct("<I")
_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Activities(Sequence[Activity]):
    """The activities of one sample: the records `first` to `last` - 1 of a batch.

    Records are converted on access, because most samples are never accessed.
    """

    def __init__(self, batch: Table, labels: Mapping[int, str], first: int, last: int) -> None:
        self._batch, self._labels, self._first, self._last = batch, labels, first, last

    def __len__(self) -> int:
        return self._last - self._first

    def __iter__(self) -> Iterator[Activity]:
        records = self._batch[self._first : self._last].tolist()
        for kind, start, end, name, in_graph, _, grid, block, registers, shared_bytes in records:
            label = self._labels[kind]
            known = label == "kernel" and block[0] > 0
            launch = Launch(_integers(grid), _integers(block), registers, shared_bytes) if known else None
            yield Activity(name if label == "kernel" else label, start, end, label, in_graph, launch)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def _integers(numbers: NDArray[np.int32]) -> tuple[int, int, int]:
    x, y, z = numbers.tolist()
    return x, y, z


class Layout:
    """The memory layout of a kind of record: `offsets` of its fields and `size`, in bytes."""

    def __init__(self, offsets: Mapping[str, int], size: int) -> None:
        self.size = size
        self._has = set(offsets)
        formats = [(REQUIRED_FIELDS | OPTIONAL_FIELDS | KERNEL_FIELDS)[name] for name in offsets]
        self._type = np.dtype(
            {"names": list(offsets), "formats": formats, "offsets": list(offsets.values()), "itemsize": size}
        )

    def read(self, memory: NDArray[np.uint8], begins: Begins) -> Table:
        """The records at the byte offsets `begins` of `memory`."""
        anywhere = np.ndarray(len(memory) - self.size + 1, self._type, memory.data, strides=1)
        found = anywhere[begins]
        table = np.zeros(len(found), RECORD)
        table["name"], table["device"] = "", UNKNOWN_DEVICE
        for name in REQUIRED_FIELDS:
            table[name] = found[name]
        if "device_id" in self._has:
            table["device"] = found["device_id"]
        if "name" in self._has:
            for address in set(found["name"].tolist()):
                table["name"][found["name"] == address] = _text(address)
        if "graph_node_id" in self._has:
            table["in_graph"] = found["graph_node_id"] != 0
        if self._has >= KERNEL_FIELDS.keys():
            for what in ("grid", "block"):
                for axis, name in enumerate("xyz"):
                    table[what][:, axis] = found[f"{what}_{name}"]
            table["registers"] = found["registers_per_thread"]
            table["shared_bytes"] = found["static_shared_memory"] + found["dynamic_shared_memory"]
        return table


def _text(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def layouts(cupti: Any) -> dict[int, Layout]:
    """The layout of each kind of record, in the newest version that `cupti` declares. Raises `NoRecorderError`."""
    found = {}
    for kind, stem in LAYOUTS.items():
        versions = [re.fullmatch(rf"{stem}([0-9]+)_dtype", name) for name in dir(cupti)]
        newest = max((match for match in versions if match), key=lambda match: int(match[1]), default=None)
        if newest is None:
            raise NoRecorderError(f"this cupti-python declares no {stem}<version>_dtype")
        fields = getattr(cupti, newest[0]).fields
        wanted = REQUIRED_FIELDS | OPTIONAL_FIELDS | (KERNEL_FIELDS if stem == "activity_kernel" else {})
        has = [name for name in wanted if name in fields]
        found[int(getattr(cupti.ActivityKind, kind))] = Layout(
            {name: fields[name][1] for name in has}, getattr(cupti, newest[0]).itemsize
        )
    return found


def loaded_library() -> ctypes.CDLL:
    """The libcupti.so that this process has loaded. Raises `NoRecorderError` if none is."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.search(r"/libcupti\.so[0-9.]*$", path):
            return ctypes.CDLL(path)
    raise NoRecorderError("cupti-python has loaded no libcupti.so")


class Cupti:
    """The module `cupti.cupti` of cupti-python, with its own delivery of records.

    CUPTI keeps the addresses of the callbacks, so an instance must live as long as the process.
    """

    def __init__(self, module: Any, library: ctypes.CDLL) -> None:
        self._module = module
        self._library = library
        self._layouts = layouts(module)
        self._buffers: dict[int, Any] = {}
        self._free: list[Any] = []
        self._callbacks: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def activity_register_callbacks(
        self, requested: Callable[[], tuple[int, int]], completed: Callable[[Iterable[Table]], None]
    ) -> None:
        """Register the two callbacks of the activity API, as cupti-python's function of this name does.

        `requested()` returns the size of a buffer in bytes and the largest number of records in it (0: no limit).
        `completed(tables)` receives the records of a buffer, one table for each kind, as an iterator that reads them;
        it must handle errors in reading. Raises `NoRecorderError`.
        """
        library = self._library

        def on_requested(buffer: Any, size: Any, most: Any) -> None:
            length, limit = requested()
            memory = self._free.pop() if self._free else ctypes.create_string_buffer(length)
            address = ctypes.addressof(memory)
            self._buffers[address] = memory
            buffer[0], size[0], most[0] = address, len(memory), limit

        def on_completed(_context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
            memory = self._buffers.pop(buffer)
            completed(self.records(library, buffer, valid))
            self._free.append(memory)

        self._callbacks = (_Requested(on_requested), _Completed(on_completed))
        status = library.cuptiActivityRegisterCallbacks(*self._callbacks)
        if status:
            raise NoRecorderError(f"cuptiActivityRegisterCallbacks returned {status}")

    def records(self, library: Any, buffer: int, valid: int) -> Iterator[Table]:
        """The records of the known kinds in the first `valid` bytes at address `buffer`, one table for each kind.

        Records are contiguous, so their sizes locate them. If one is of an unknown kind, its size is unknown; then
        CUPTI's own iterator locates all records, which is several times slower.
        """
        if valid == 0:
            return
        memory = np.frombuffer(memoryview((ctypes.c_char * valid).from_address(buffer)), np.uint8)
        begins: Mapping[int, Begins] | None = self._contiguous(memory.data, valid)
        if begins is None:
            begins = self._iterated(library, memory.data, buffer, valid)
        for kind, offsets in begins.items():
            yield self._layouts[kind].read(memory, offsets)

    def _contiguous(self, memory: memoryview, valid: int) -> Mapping[int, Begins] | None:
        """Offsets of the records of each kind, from the sizes of the layouts; None if a record has an unknown size."""
        first = self._layouts.get(_KIND.unpack_from(memory)[0])
        if first is not None and valid % first.size == 0:
            kinds = np.ndarray(valid // first.size, "<u4", memory, strides=first.size)
            if (kinds == kinds[0]).all():
                return {int(kinds[0]): slice(0, valid, first.size)}
        found: dict[int, list[int]] = {}
        offset = 0
        while offset + _KIND.size <= valid:
            (kind,) = _KIND.unpack_from(memory, offset)
            layout = self._layouts.get(kind)
            if layout is None:
                return None
            found.setdefault(kind, []).append(offset)
            offset += layout.size
        return found if offset == valid else None

    def _iterated(self, library: Any, memory: memoryview, buffer: int, valid: int) -> dict[int, list[int]]:
        """Offsets of the records of each known kind, from CUPTI's iterator."""
        found: dict[int, list[int]] = {}
        record = ctypes.c_void_p(None)
        begin, length, at = ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        while library.cuptiActivityGetNextRecord(begin, length, at) == 0 and record.value:
            (kind,) = _KIND.unpack_from(memory, record.value - buffer)
            if kind in self._layouts:
                found.setdefault(kind, []).append(record.value - buffer)
        return found
