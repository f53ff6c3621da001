"""CUPTI's records, read in place.

cupti-python gives each record as an object over a NumPy record array: on an H200's host 35 us for a kernel, which
would be a third of the time of a sample. Here the same buffers are read where they lie, at the offsets that
cupti-python's types declare for the five fields that the recorder needs. Everything else is cupti-python's.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from suite.timing.intervals import NoRecorderError

LAYOUTS = {
    "CONCURRENT_KERNEL": "activity_kernel",
    "KERNEL": "activity_kernel",
    "MEMCPY": "activity_memcpy",
    "MEMCPY2": "activity_memcpy_pto_p",
    "MEMSET": "activity_memset",
}
"""Kinds of activity, and the types of their records up to the version that cupti-python appends."""
FIELDS = ("kind", "start", "end", "name", "graph_node_id")

_KIND = struct.Struct("<I")
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


class _Texts(dict[int, str]):
    """What lies at an address, read once."""

    def __missing__(self, address: int) -> str:
        text = self[address] = ctypes.string_at(address).decode(errors="replace") if address else ""
        return text


class Layout:
    """Where a record has its fields: `offsets` in bytes, of those that it has, and `size` of all.

    `fields(buffer, offset)` gives them as in FIELDS, 0 for those that the record has not.
    """

    def __init__(self, offsets: Mapping[str, int], size: int) -> None:
        self.size = size
        ordered = sorted(offsets, key=offsets.__getitem__)
        form, at = "<", 0
        for name in ordered:
            form += f"{offsets[name] - at}x" + ("I" if name == "kind" else "Q")
            at = offsets[name] + (4 if name == "kind" else 8)
        unpack = struct.Struct(form).unpack_from
        pick = itemgetter(*(ordered.index(name) if name in offsets else len(ordered) for name in FIELDS))
        self.fields: Callable[[Any, int], tuple[int, ...]] = (
            unpack if tuple(ordered) == FIELDS else lambda buffer, offset: pick((*unpack(buffer, offset), 0))
        )


def layouts(cupti: Any) -> dict[int, Layout]:
    """The layout of each kind of record, of the newest version that this cupti-python declares."""
    found = {}
    for kind, stem in LAYOUTS.items():
        versions = [re.fullmatch(rf"{stem}([0-9]+)_dtype", name) for name in dir(cupti)]
        newest = max((match for match in versions if match), key=lambda match: int(match[1]), default=None)
        if newest is None:
            raise NoRecorderError(f"this cupti-python declares no {stem}<version>_dtype")
        fields = getattr(cupti, newest[0]).fields
        has = [name for name in FIELDS if name in fields and (name != "name" or stem == "activity_kernel")]
        found[int(getattr(cupti.ActivityKind, kind))] = Layout(
            {name: fields[name][1] for name in has}, getattr(cupti, newest[0]).itemsize
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
        """The records of the known kinds in the first `valid` bytes of `buffer`.

        They lie one after the other. Where one of another kind, whose size is not known, is among them, CUPTI's own
        iterator finds each, at several times the cost.
        """
        memory = (ctypes.c_char * valid).from_address(buffer)
        found = self._one_after_the_other(memory, valid)
        yield from found if found is not None else self._iterated(library, memory, buffer, valid)

    def _one_after_the_other(self, memory: Any, valid: int) -> list[Record] | None:
        """None where the records cannot be told apart."""
        found: list[Record] = []
        texts = _Texts()
        offset = 0
        while offset + _KIND.size <= valid:
            layout = self._layouts.get(_KIND.unpack_from(memory, offset)[0])
            if layout is None or offset + layout.size > valid:
                return None
            kind, start, end, name, node = layout.fields(memory, offset)
            found.append(Record(kind, start, end, texts[name], node != 0))
            offset += layout.size
        return found if offset == valid else None

    def _iterated(self, library: Any, memory: Any, buffer: int, valid: int) -> Iterator[Record]:
        texts = _Texts()
        record = ctypes.c_void_p(None)
        begin, length, at = ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        while library.cuptiActivityGetNextRecord(begin, length, at) == 0 and record.value:
            layout = self._layouts.get(_KIND.unpack_from(memory, record.value - buffer)[0])
            if layout is not None:
                kind, start, end, name, node = layout.fields(memory, record.value - buffer)
                yield Record(kind, start, end, texts[name], node != 0)
