"""Options of a run. `selection.py` has its operations, implementations and cases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from suite.core.least import NOTHING_MORE, Least
from suite.hardware.device import Device, resolve
from suite.processes.limits import FIRST_CALL_S
from suite.results.noise import MAX_NOISE


class Sustain(StrEnum):
    """The rows that get a sustained time, each of which takes more than 2 s."""

    NONE = "none"
    LARGEST = "largest"
    """The fastest row of each framework and of the vendors, in the largest case of each operation."""
    FASTEST = "fastest"
    """These rows in every case."""
    ALL = "all"
    """Every timed row."""


@dataclass(frozen=True)
class Options:
    """Options of `compare` that hold for every case."""

    device: Device
    cache: str = "cold"
    """State of the L2 cache before each sample: `cold` or `warm`."""
    timed: bool = True
    """Time the implementations that agree."""
    seed: int = 0
    """Seed of the random inputs."""
    timeout_s: float = FIRST_CALL_S
    """Time limit of an implementation's first call, in seconds. Later calls have less (`processes/limits.py`)."""
    native_only: bool = False
    """Leave out implementations that are interpreted or emulated on this device."""
    host: Device | None = None
    """A CPU whose native implementations get rows in the tables of `device`."""
    transfers: bool = False
    """Also time the copies of the inputs to the device and of the result back."""
    compiles: bool = False
    """Also time first calls in fresh processes, with empty and with warm caches."""
    max_noise: float = MAX_NOISE
    """Half width of the 95% interval, relative to the time, above which a row is noisy."""
    least: Least = NOTHING_MORE
    """Smallest time and number of samples that each implementation is measured for."""
    repeat: int = 1
    """Number of runs in fresh processes. Each row has the medians over the runs."""
    sustained: Sustain = Sustain.NONE
    """The rows that get a sustained time too."""
    telling: bool = False
    """Also check each implementation on its operation's telling cases, once in each dtype and precision."""
    every_telling: bool = False
    """Implementations of the tree run all telling cases too, instead of a selection."""
    profiled: bool = False
    """Also profile one call of each implementation with Nsight Compute, after all rows of its case are timed."""
    counted: bool = False
    """Also count what the kernels of one call do, without a GPU."""
    dumped: tuple[str, ...] = ()
    """Kinds of code to write, out of `inspection.KINDS`."""
    code_folder: Path = Path()
    """The folder in which the code is written."""
    memory_bytes: int | None = None
    """Host memory that a worker may use, in bytes. None: most of the free memory."""
    devices: int = 1
    """Devices of the kind of `device` that share the cases."""


def sweep_host(device: Device, sweep: bool) -> Device | None:
    """The CPU whose implementations also run in a sweep on a GPU; None for any other run."""
    return resolve("cpu") if sweep and device.type == "cuda" else None
