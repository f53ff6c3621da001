"""The messages between a worker, which judges, and a guest, which runs a brought file: a command and its answer.

command                 answer
Hold, Release           Finished
Check                   Called, Raised      one call as the check makes it; the result lies in the result's block
Deliver                 Delivered           what a result of an earlier call holds now lies in the result's block
Bind, Rebind            Bound, Raised       implementations are loaded, to be timed
Run                     Ran, Raised         calls outside samples
StartRecorder           Finished, NoRecorder
Sample                  Finished; other commands may follow, then Go
Go                      Ran, Raised; after Ran comes Delivered
Evict, Serialize, StopRecorder              Finished
Collect                 Collected
PeakBytes, About        Peak, Facts
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from suite.implementations.external.reference import Reference
from suite.problem.case import Case


@dataclass(frozen=True)
class Block:
    """Memory that both processes map: a file descriptor that comes with the message, or a handle of the driver."""

    nbytes: int
    handle: str = ""
    """Of CUDA, in hexadecimal digits; empty on a CPU."""


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
    """The case whose inputs are `operands`, over `blocks`, and the memory for results of the form that they must have.

    `staged` has inputs that a late call copies to the others on its own stream.
    """

    case: Case
    blocks: tuple[Block, ...]
    operands: tuple[Operand, ...]
    staged: tuple[Operand, ...]
    result: Operand


@dataclass(frozen=True)
class Release:
    """Forget the case, its memory and what was bound."""


@dataclass(frozen=True)
class Check:
    """Load the implementation unless it is loaded, and call it while new allocations hold NaN.

    `again`: it is one of many calls, whose result need not be held. `telling`: a case that it has no parameters for is
    not covered.
    """

    implementation: Reference
    late: bool
    again: bool
    telling: bool


@dataclass(frozen=True)
class Deliver:
    """Copy to the result's block what a result of `Check` (its number, from 0) or the first sample of a name holds."""

    which: int | str


@dataclass(frozen=True)
class Bind:
    implementation: Reference


@dataclass(frozen=True)
class Rebind:
    """The operands have other values: arrays that are copies of them are made again."""


@dataclass(frozen=True)
class Run:
    """`count` calls of what was bound under `name`; none for an empty name. `keep` has the last result copied to the
    result's memory, as after a sample."""

    name: str
    count: int
    keep: bool = False


@dataclass(frozen=True)
class Evict:
    """Fill the last-level cache with other data."""


@dataclass(frozen=True)
class StartRecorder: ...


@dataclass(frozen=True)
class Serialize: ...


@dataclass(frozen=True)
class StopRecorder: ...


@dataclass(frozen=True)
class Sample:
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
    """What is to be said of an implementation after its calls."""

    implementation: Reference


Command = (
    Hold
    | Release
    | Check
    | Deliver
    | Bind
    | Rebind
    | Run
    | Evict
    | StartRecorder
    | Serialize
    | StopRecorder
    | Sample
    | Go
    | Collect
    | PeakBytes
    | About
)


@dataclass(frozen=True)
class Settled:
    """The guest has started. `lifeline` is the process that ends it with the worker."""

    lifeline: int


@dataclass(frozen=True)
class Finished: ...


@dataclass(frozen=True)
class Called:
    """`refusal` is why the result is not of the right form. `alias` is the position of the input in whose memory the
    result lies, or None. `ranges` are the addresses of each result."""

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
    """By the guest's clock: until the call returned, and until its result was ready."""

    issued_ns: int
    ready_ns: int


@dataclass(frozen=True)
class Recorded:
    """A sample of a recorder that observes the device, with the number of its activities."""

    name: str
    us: float
    activities: int


@dataclass(frozen=True)
class ObservedLaunch:
    """How a kernel was launched."""

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
    of_graph: bool
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
    """The command raised: the implementation, or the recorder, whose records contradict each other or which is not
    available."""

    kind: Literal["unsupported", "error", "recorder", "no recorder"]
    reason: str


Answer = Settled | Finished | Called | Delivered | Bound | Ran | Collected | Peak | Facts | Raised
