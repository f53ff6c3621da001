"""The part of `cupti.cupti` that the recorder uses, in Python."""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace

import numpy as np

from suite.timing.cupti_records import RECORD

RecordTuple = tuple[int, int, int, str, bool, int, tuple[int, int, int], tuple[int, int, int], int, int]
"""The fields of RECORD."""
GRID, BLOCK, REGISTERS, SHARED_BYTES = (132, 2, 1), (128, 1, 1), 168, 4096
"""Grid, block, registers and shared memory of every kernel."""


class FakeCuptiError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class FakeCupti:
    """`launch` stands for the device: it makes a record, which waits for a flush, a `held` one for a forced flush."""

    SUBSCRIBER_PARAMS_SIZE = 32
    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10, KERNEL=3, MEMCPY=1, MEMCPY2=22, MEMSET=2)
    Result = SimpleNamespace(ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED=39)
    cuptiError = FakeCuptiError  # noqa: N815

    def __init__(self) -> None:
        self.subscribed = ""
        self.enabled: set[int] = set()
        self.kept: list[RecordTuple] = []
        self.held: list[RecordTuple] = []
        self.dropped = 0
        self.flags: list[int] = []
        self.skew = 0

    class SubscriberParams:
        ptr = 1
        old_subscriber_name: str | None = None

    def subscribe_v2(self, callback: object, userdata: object, params: int) -> int:
        if self.subscribed:
            raise FakeCuptiError(39)
        self.subscribed = "suite"
        return 7

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 7
        self.subscribed = ""

    def activity_register_callbacks(self, requested: object, completed: object) -> None:
        self.requested, self.completed = requested, completed

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def get_timestamp(self) -> int:
        return time.perf_counter_ns() + 10**18 + self.skew

    def activity_get_num_dropped_records(self, context: int, stream: int, address: int) -> None:
        ctypes.c_size_t.from_address(address).value = self.dropped

    def activity_flush_all(self, flag: int) -> None:
        self.flags.append(flag)
        size, most = self.requested()
        assert size >= 1 << 16
        assert most == 0
        records, self.kept = self.kept, []
        if flag == 1:
            records, self.held = records + self.held, []
        if records:
            self.completed(np.array([record], RECORD) for record in records)

    def launch(self, us: float, kind: int = 10, name: str = "k", held: bool = False, device: int = 0) -> None:
        start = self.get_timestamp()
        time.sleep(us / 1e6)
        if kind == 10 and 3 in self.enabled:
            kind, us = 3, us + 1.5  # the record of a serialized kernel is longer
        end, nothing = start + int(us * 1000), (0, 0, 0)
        if kind in (3, 10):
            record = (kind, start, end, name, False, device, GRID, BLOCK, REGISTERS, SHARED_BYTES)
        else:
            record = (kind, start, end, "", False, device, nothing, nothing, 0, 0)
        if kind in self.enabled:
            (self.held if held else self.kept).append(record)
