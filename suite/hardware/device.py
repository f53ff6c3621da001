"""Resolves the value of `--device` to the device of a run."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from suite.core import paths
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.hardware.host import cpu_facts
from suite.hardware.monitor import devices, gpus_here, nvml_problem


@dataclass(frozen=True)
class Device:
    """A CPU or one NVIDIA GPU."""

    type: str
    """`cpu` or `cuda`."""
    index: int = 0
    """Index among the visible GPUs."""
    name: str = ""
    """The processor's model, or the name that NVML gives the GPU."""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability; (0, 0) on a CPU."""

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"

    @property
    def results_folder(self) -> Path:
        """The default folder of this device's results. It does not depend on the working directory."""
        prefix = "cpu-" if self.type == "cpu" else ""
        return paths.results() / f"{prefix}{device_slug(self.name)}"


def resolve(text: str | None) -> Device:
    """The device that `--device text` names: `cpu`, `cuda` or `cuda:INDEX`. None is the first GPU, else the CPU.

    Raises `UsageError` for another word, for a GPU that does not exist, and for a slice of a GPU (MIG).
    """
    text = None if text is None else str(text)  # a torch.device is a name too
    if text != "cpu":
        _refuse_slice()
    found = devices()
    if text is None:
        text = "cuda" if found else "cpu"
    if text == "cpu":
        return Device("cpu", name=cpu_facts()["name"])
    match = re.fullmatch(r"cuda(?::([0-9]{1,4}))?", text)
    if match is None:
        raise UsageError(f"--device: {unknown(text, ('cpu', 'cuda', 'cuda:INDEX'))}")
    if not found:
        raise UsageError(f"--device {text}: no NVIDIA GPU here ({nvml_problem() or 'none is visible'}); valid is cpu")
    index = int(match.group(1) or 0)
    if index >= len(found):
        raise UsageError(f"--device {text}: there are {len(found)} GPUs, cuda:0 to cuda:{len(found) - 1}")
    facts = found[index]
    major, minor = facts["compute_capability"] or (0, 0)
    return Device("cuda", index, facts["name"], (major, minor))


def _refuse_slice() -> None:
    """Raise `UsageError` if CUDA_VISIBLE_DEVICES names a slice of a GPU, whose peaks and clocks are unknown."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if any(entry.strip().startswith("MIG-") for entry in visible.split(",")):
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={visible}: a slice of a GPU (MIG), which is not measured; "
            f"there are {gpus_here()} GPUs here: name a whole one, or give --device cpu"
        )


def device_slug(name: str) -> str:
    """A device's name as a folder name: `NVIDIA H100 80GB HBM3` becomes `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("(r)", "").replace("(tm)", "")).strip("-") or "unknown"


def memory_bytes(device_type: str, index: int = 0) -> int | None:
    """Free memory in bytes on `cpu`, or on the GPU `cuda` `index`; None if it cannot be read."""
    if device_type == "cpu":
        available = cpu_facts()["memory_available_bytes"]
        return int(available) if available is not None else None
    found = [device for device in devices() if device["index"] == index]
    return int(found[0]["memory_free_bytes"]) if found and found[0]["memory_free_bytes"] is not None else None


def array_bytes(most: int, free: int | None) -> int:
    """Size of a large array in bytes: `most`, or the largest power of two within a sixteenth of `free` if less."""
    return most if free is None else min(most, 1 << max(16, (free // 16).bit_length() - 1))
