"""The messages between a worker, which judges, and an external process, which runs a user's file.

command                 answer
Hold, Release           Finished
Check                   Called, Raised      one call as the check makes it; the result goes to the result's block
Keep                    Finished            the result of the latest sample is kept
Deliver                 Delivered           the present value of an earlier result goes to the result's block
Bind, Rebind            Bound, Raised       loads implementations for timing
Run                     Ran, Raised         calls outside samples
Sample                  Sampled, Raised     one sample on a CPU
StartRecorder           Finished, NoRecorder
Record                  Finished; other commands may follow, then Go: one sample on a GPU
Go                      Ran, Raised; after Ran comes Delivered
Serialize, StopRecorder Finished
Collect                 Collected
PeakBytes, About        Peak, Facts
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from suite.implementations.identity import Reference
from suite.problem.case import Case


@dataclass(frozen=True)
class Block:
    """Memory that both processes map, by a file descriptor that comes with the message or by a driver handle."""

    nbytes: int
    handle: str = ""
    """CUDA IPC handle in hexadecimal digits; empty on a CPU, and with `ring`."""
    ring: int = 0
    """Bytes of the block behind all addresses of operands far apart on a GPU (`suite/problem/ring.py`)."""


@dataclass(frozen=True)
class Operand:
    """A tensor in one of the blocks of the message. Strides and offset count elements."""

    block: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Hold:
    """A case: `operands` are its inputs in `blocks`, `result` is the memory for results, joined if there are several.

    `output_shapes` and `output_dtypes` are required of the results. `staged` has the inputs that a late call copies to
    the operands on its own stream.
    """

    case: Case
    blocks: tuple[Block, ...]
    operands: tuple[Operand, ...]
    staged: tuple[Operand, ...]
    result: Operand
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """Drop the case, its memory and the bound implementations."""


@dataclass(frozen=True)
class Check:
    """Load the implementation if needed, and call it while new allocations hold NaN.

    `again`: one of many repetitions, whose result is not kept. `telling`: a case counts as not covered if the function
    has no parameters for its arguments, or if an assertion fails.
    """

    implementation: Reference
    late: bool
    again: bool
    telling: bool


@dataclass(frozen=True)
class Keep:
    """Keep the result of the latest sample, which was of `name`. The command follows the sample, so that the process
    cannot know it before."""

    name: str


@dataclass(frozen=True)
class Deliver:
    """Copy to the result's block the present value of a `Check` (number, from 0) or of the latest kept sample of a
    name, which is kept no longer."""

    which: int | str


@dataclass(frozen=True)
class Bind:
    """Load an implementation and bind it to the operands, to be timed."""

    implementation: Reference


@dataclass(frozen=True)
class Rebind:
    """The operands have new values: renew the arrays that are copies of them."""


@dataclass(frozen=True)
class Run:
    """`count` calls of the implementation bound under `name`; none for an empty name.

    `keep`: copy the last result to the result's memory, as after a sample.
    """

    name: str
    count: int
    keep: bool = False


@dataclass(frozen=True)
class StartRecorder: ...


@dataclass(frozen=True)
class Serialize: ...


@dataclass(frozen=True)
class StopRecorder: ...


@dataclass(frozen=True)
class Sample:
    """Bind the present values of the operands, call the implementation bound under `name`, and say where its result is.

    An empty name stands for a call that fills new arrays of `framework`.
    """

    name: str
    framework: str = ""


@dataclass(frozen=True)
class Record:
    """Take a sample of the implementation bound under `name` with the recorder, at the command `Go`."""

    name: str


@dataclass(frozen=True)
class Go: ...


@dataclass(frozen=True)
class Collect: ...


@dataclass(frozen=True)
class PeakBytes:
    name: str


@dataclass(frozen=True)
class About:
    """Ask for the `Facts` of an implementation after its calls."""

    implementation: Reference


Command = (
    Hold
    | Release
    | Check
    | Keep
    | Deliver
    | Bind
    | Rebind
    | Run
    | StartRecorder
    | Serialize
    | StopRecorder
    | Sample
    | Record
    | Go
    | Collect
    | PeakBytes
    | About
)


@dataclass(frozen=True)
class Ready:
    """The process has started. `lifeline` is the id of the shell that ends it with the worker."""

    lifeline: int


@dataclass(frozen=True)
class Finished: ...


@dataclass(frozen=True)
class Called:
    """The outcome of a call of the check.

    `refusal` says why the result does not have the required form; empty if it has. `alias` is the position of the input
    whose memory holds the result, or None. `ranges` are the addresses of each result.
    """

    refusal: str = ""
    alias: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    unfinished: bool = False
    spilled: bool = False


@dataclass(frozen=True)
class Delivered:
    refusal: str = ""


@dataclass(frozen=True)
class Bound:
    """`copied`: some arrays are copies of the operands."""

    copied: bool


@dataclass(frozen=True)
class Ran:
    """Nanoseconds by the external process's clock until the call returned, and until its result was ready."""

    issued_ns: int
    ready_ns: int


@dataclass(frozen=True)
class Place:
    """An output in the memory of the external process: its first byte's address, and its strides in elements."""

    address: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Sampled:
    """The times of `Ran`, the `refusal` of `Called`, and the outputs, which stay there until the next sample."""

    issued_ns: int
    ready_ns: int
    refusal: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """A sample of a recorder that observes the device; `activities` is their number.

    `before_us` and `after_us` are those of `timing.recorder.Sample`: work outside of the call.
    """

    name: str
    us: float
    activities: int
    before_us: float = 0.0
    after_us: float = 0.0


@dataclass(frozen=True)
class ObservedLaunch:
    """Launch parameters of a kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Observed:
    """An activity of the device."""

    name: str
    start: int
    end: int
    kind: str
    in_graph: bool
    launch: ObservedLaunch | None


@dataclass(frozen=True)
class Latest:
    """The activities of the latest sample of a name."""

    name: str
    activities: tuple[Observed, ...]


@dataclass(frozen=True)
class Collected:
    samples: tuple[Recorded, ...]
    latest: tuple[Latest, ...]


@dataclass(frozen=True)
class Peak:
    bytes: int | None


@dataclass(frozen=True)
class Facts:
    remarks: tuple[str, ...]
    config: str
    compile_cache: str


@dataclass(frozen=True)
class Raised:
    """The command raised an exception.

    `kind` is `recorder` for records that contradict each other, `no recorder` for a recorder that is not available, and
    else the status of the implementation.
    """

    kind: Literal["unsupported", "error", "recorder", "no recorder"]
    reason: str


Answer = Ready | Finished | Called | Delivered | Bound | Ran | Sampled | Collected | Peak | Facts | Raised
