"""Measures the host time that the recorder itself adds to a sample, with an imitation of CUPTI; needs no GPU.

    python -m validation.recorder_cost                 # 250 samples a delivery, as of calls of 100 us
    python -m validation.recorder_cost --samples 50

Each sample has one kernel of its preparation and one of its call. The imitation of CUPTI appends a launch to a list and
writes all records into one buffer at a flush; both of its own times are left out. What CUPTI's tracing and the delivery
add is therefore not in the numbers: `python -m suite doctor --timer` measures the sum on a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.timing import median  # noqa: E402
from suite.timing.cupti_records import Cupti  # noqa: E402
from suite.timing.recorder_cupti import CuptiRecorder  # noqa: E402
from suite.timing.sampling import no_garbage_collection  # noqa: E402

KERNEL = np.dtype(
    {
        "names": ["kind", "registers_per_thread", "start", "end", "device_id"]
        + [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
        + ["static_shared_memory", "dynamic_shared_memory", "name", "graph_node_id"],
        "formats": ["<u4", "<u2", "<u8", "<u8", "<u4", *["<i4"] * 8, "<u8", "<u8"],
        "offsets": [0, 6, 16, 24, 40, *range(52, 84, 4), 104, 144],
        "itemsize": 224,
    }
)
"""A record of a kernel, about as long as one of CUPTI."""
COPY = np.dtype([("kind", "<u4"), ("pad", "V12"), ("start", "<u8"), ("end", "<u8")])
KERNEL_KIND = 3


class Library:
    """The part of libcupti that delivers buffers. `launch` stands for the device."""

    def __init__(self) -> None:
        self.launched: list[int] = []
        self.kernel = ctypes.create_string_buffer(b"_Z4spinl")
        self.own_ns = 0
        """Time of the imitation itself since it was last set to 0."""

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:  # noqa: N802
        self.requested, self.completed = requested, completed
        return 0

    def launch(self) -> None:
        """A kernel that begins 1 us after its launch, takes 1 us, and is waited for 1 us after its end."""
        begin = now = perf_counter_ns()
        self.launched.append(begin + 1000)
        while now - begin < 3000:
            now = perf_counter_ns()
        self.own_ns += now - begin

    def flush(self, flag: int) -> None:
        begin = perf_counter_ns()
        starts, self.launched = np.array(self.launched, np.int64), []
        records = np.zeros(len(starts), KERNEL)
        records["kind"], records["name"] = KERNEL_KIND, ctypes.addressof(self.kernel)
        records["start"], records["end"] = starts, starts + 1000
        for axis in "xyz":
            records[f"grid_{axis}"] = records[f"block_{axis}"] = 1
        self.own_ns += perf_counter_ns() - begin
        while len(records):
            records = records[self.deliver(records) :]

    def deliver(self, records: Any) -> int:
        """Deliver as many records as a buffer holds, and return their number."""
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        begin = perf_counter_ns()
        count = min(len(records), size.value // records.itemsize)
        ctypes.memmove(buffer, records.ctypes.data, count * records.itemsize)
        self.own_ns += perf_counter_ns() - begin
        self.completed(None, 0, buffer, size, count * records.itemsize)
        return count


def recorder(library: Library) -> CuptiRecorder:
    """A started recorder on this library."""
    module = SimpleNamespace(
        ActivityKind=SimpleNamespace(CONCURRENT_KERNEL=10, KERNEL=KERNEL_KIND, MEMCPY=1, MEMCPY2=22, MEMSET=2),
        Result=SimpleNamespace(ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED=39),
        cuptiError=RuntimeError,
        SUBSCRIBER_PARAMS_SIZE=32,
        SubscriberParams=lambda: SimpleNamespace(ptr=1, old_subscriber_name=None),
        activity_kernel9_dtype=KERNEL,
        activity_memcpy6_dtype=COPY,
        activity_memcpy_pto_p4_dtype=COPY,
        activity_memset4_dtype=COPY,
        subscribe_v2=lambda *_: 7,
        unsubscribe=lambda _: None,
        activity_enable=lambda _: None,
        activity_disable=lambda _: None,
        activity_flush_all=library.flush,
        activity_get_num_dropped_records=lambda *_: None,
        get_timestamp=perf_counter_ns,
    )
    found = CuptiRecorder(lambda: None, library.launch, Cupti(module, library))  # type: ignore[arg-type]
    found.start()
    found._enable("KERNEL", "kernel")
    return found


@dataclass(frozen=True)
class Cost:
    """Host times of the recorder, in us of one sample."""

    sample_us: float
    """Readings of the clocks and bookkeeping, while samples are taken."""
    collect_us: float
    """Reading records, placing them in spans, and making samples."""


def cost(samples: int, rounds: int) -> Cost:
    """Median cost over `rounds` deliveries of `samples` samples each."""
    library = Library()
    record = recorder(library)
    launch = library.launch
    taken, collected = [], []
    with no_garbage_collection():
        for _ in range(rounds):
            library.own_ns = 0
            begin = perf_counter_ns()
            for _ in range(samples):
                record.sample("spin", launch, launch)
            taken.append((perf_counter_ns() - begin - library.own_ns) / samples / 1000)
            library.own_ns = 0
            begin = perf_counter_ns()
            found = record.collect()
            collected.append((perf_counter_ns() - begin - library.own_ns) / samples / 1000)
            assert len(found) == samples
    record.stop()
    return Cost(median(taken), median(collected))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=250, help="samples of one delivery")
    parser.add_argument("--rounds", type=int, default=200, help="deliveries; the median counts")
    options = parser.parse_args(arguments)
    found = cost(options.samples, options.rounds)
    total = found.sample_us + found.collect_us
    print(f"{found.sample_us:.2f} us a sample while taken, {found.collect_us:.2f} us in its delivery: {total:.2f} us")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
