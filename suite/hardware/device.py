"""Where a run takes place, from the word on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from suite import hardware
from suite.core.errors import UsageError


@dataclass(frozen=True)
class Device:
    """`index` is the GPU's place among the visible ones; `capability` is (0, 0) on a CPU."""

    type: str
    index: int = 0
    name: str = ""
    capability: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"

    @property
    def results_folder(self) -> Path:
        """Where this device's results go by default."""
        prefix = "cpu-" if self.type == "cpu" else ""
        return Path("results") / f"{prefix}{hardware.device_slug(self.name)}"


def resolve(text: str | None) -> Device:
    """`cpu`, `cuda`, `cuda:1`; None is the first GPU, or the CPU where there is none. Raises `UsageError`."""
    found = hardware.devices()
    if text is None:
        text = "cuda" if found else "cpu"
    if text == "cpu":
        return Device("cpu", name=hardware.cpu_facts()["name"])
    match = re.fullmatch(r"cuda(?::([0-9]{1,4}))?", text)
    if match is None:
        raise UsageError(f"--device: unknown {text!r}; valid are cpu, cuda and cuda:INDEX")
    if not found:
        raise UsageError(
            f"--device {text}: no NVIDIA GPU here ({hardware.why_no_nvml() or 'none is visible'}); valid is cpu"
        )
    index = int(match.group(1) or 0)
    if index >= len(found):
        raise UsageError(f"--device {text}: there are {len(found)} GPUs, cuda:0 to cuda:{len(found) - 1}")
    facts = found[index]
    major, minor = facts["compute_capability"] or (0, 0)
    return Device("cuda", index, facts["name"], (major, minor))
