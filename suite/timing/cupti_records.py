"""CUPTI's records, read in place.

cupti-python gives each record as an object over a NumPy record array: on an H200's host 35 us for a kernel, which
would be a third of the time of a sample. Here the same buffers are read by NumPy, all records of a buffer at once, at
the offsets that cupti-python's types declare for the five fields that the recorder needs. Everything else is
cupti-python's.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suite.timing.intervals import NoRecorderError

LAYOUTS = {
    "CONCURRENT_KERNEL": "activity_kernel",
    "KERNEL": "activity_kernel",
    "MEMCPY": "activity_memcpy",
    "MEMCPY2": "activity_memcpy_pto_p",
    "MEMSET": "activity_memset",
}
"""Kinds of activity, and the types of their records up to the version that cupti-python appends."""
FIELDS = frozenset({"kind", "start", "end", "name", "graph_node_id"})

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Record(NamedTuple):
    """`start` and `end` in nanoseconds of CUPTI's clock; `name` of kernels only."""

    kind: int
    start: int
    end: int
    name: str
    of_graph: bool


class Layout:
    """Where a record has its fields: `offsets` in bytes, of those that it has, and `size` of all."""

    def __init__(self, offsets: Mapping[str, int], size: int) -> None:
        formats = ["<u4" if name == "kind" else "<u8" for name in offsets]
        places = list(offsets.values())
        self.dtype = np.dtype({"names": list(offsets), "formats": formats, "offsets": places, "itemsize": size})

    def read(self, kind: int, address: int, count: int = 1) -> list[Record] | None:
        """`count` records, one after the other from `address` on; None if they are not all of this kind."""
        memory = (ctypes.c_char * (count * self.dtype.itemsize)).from_address(address)
        table = np.frombuffer(memoryview(memory), self.dtype)
        fields = self.dtype.names or ()
        if not (table["kind"] == kind).all():
            return None
        pointers = table["name"].tolist() if "name" in fields else [0] * count
        nodes = table["graph_node_id"].tolist() if "graph_node_id" in fields else [0] * count
        names = {pointer: _text(pointer) for pointer in set(pointers)}
        times = zip(table["start"].tolist(), table["end"].tolist(), strict=True)
        return [
            Record(kind, start, end, names[pointer], node != 0)
            for (start, end), pointer, node in zip(times, pointers, nodes, strict=True)
        ]


def _text(pointer: int) -> str:
    return ctypes.string_at(pointer).decode(errors="replace") if pointer else ""


def layouts(cupti: Any) -> dict[int, Layout]:
    """The layout of each kind of record, of the newest version that this cupti-python declares."""
    found = {}
    for kind, stem in LAYOUTS.items():
        versions = [re.fullmatch(rf"{stem}([0-9]+)_dtype", name) for name in dir(cupti)]
        newest = max((match for match in versions if match), key=lambda match: int(match[1]), default=None)
        if newest is None:
            raise NoRecorderError(f"this cupti-python declares no {stem}<version>_dtype")
        fields = getattr(cupti, newest[0]).fields
        wanted = FIELDS if stem == "activity_kernel" else FIELDS - {"name"}
        found[int(getattr(cupti.ActivityKind, kind))] = Layout(
            {name: fields[name][1] for name in wanted & set(fields)}, getattr(cupti, newest[0]).itemsize
        )
    return found


def loaded_library() -> ctypes.CDLL:
    """The CUPTI that this process has already loaded."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.search(r"/libcupti\.so[0-9.]*$", path):
            return ctypes.CDLL(path)
    raise NoRecorderError("cupti-python has loaded no libcupti.so")


class Cupti:
    """The module `cupti.cupti` of cupti-python, but for the delivery of records. CUPTI keeps its callbacks' addresses,
    so it has to live as long as the process.
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
        self, requested: Callable[[], tuple[int, int]], completed: Callable[[Iterable[Record]], None]
    ) -> None:
        """As cupti-python's: `requested` gives the size of a buffer and the most records in it, 0 for no limit."""
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

    def records(self, library: Any, buffer: int, valid: int) -> Iterator[Record]:
        """The records of the known kinds in the first `valid` bytes of `buffer`: at once if all are of one kind, as
        where nothing but kernels ran; else one by one, by CUPTI's iterator.
        """
        kind = ctypes.c_uint32.from_address(buffer).value if valid else 0
        layout = self._layouts.get(kind)
        if layout is not None and valid % layout.dtype.itemsize == 0:
            found = layout.read(kind, buffer, valid // layout.dtype.itemsize)
            if found is not None:
                yield from found
                return
        record = ctypes.c_void_p(None)
        step, at = library.cuptiActivityGetNextRecord, ctypes.byref(record)
        begin, length = ctypes.c_void_p(buffer), ctypes.c_size_t(valid)
        while valid and step(begin, length, at) == 0 and record.value:
            kind = ctypes.c_uint32.from_address(record.value).value
            layout = self._layouts.get(kind)
            if layout is not None:
                yield from layout.read(kind, record.value) or ()
