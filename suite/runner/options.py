"""How a run is done, as opposed to what is run (`selection.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suite.hardware.device import Device
from suite.processes.limits import FIRST_CALL_S
from suite.results.noise import MAX_NOISE


@dataclass(frozen=True)
class Options:
    """Options of `compare` that hold for every case."""

    device: Device
    cache: str = "cold"
    """State of the L2 cache before each sample: `cold` or `warm`."""
    timed: bool = True
    """Whether implementations that agree are timed."""
    seed: int = 0
    """Seed of the random inputs."""
    timeout_s: float = FIRST_CALL_S
    """Longest first call of an implementation; later calls have less (`worker/protocol.py`)."""
    native_only: bool = False
    """Leaves out implementations that are interpreted or emulated on this device."""
    host: Device | None = None
    """A CPU whose native implementations stand beside those of `device` in the same table."""
    transfers: bool = False
    """Also time copying the inputs to the device and the result back."""
    compiles: bool = False
    """Also time first calls in fresh processes, with empty and with warm caches."""
    max_noise: float = MAX_NOISE
    """Half width of the 95% interval, relative to the time, from which on a row is noisy."""
    repeat: int = 1
    """Runs in fresh processes, of which each row has the medians."""
    telling: bool = False
    """Whether each implementation also has to pass its operation's telling cases, once in each dtype and precision."""
    profiled: bool = False
    """Whether Nsight Compute also profiles one call of each implementation, once all of its case are timed."""
    dumped: tuple[str, ...] = ()
    """Kinds of code to write: of `inspection.KINDS`."""
    code_folder: Path = Path()
    """Where the code goes."""
    memory_bytes: int | None = None
    """Host memory that a worker may take; None is most of what is free."""
