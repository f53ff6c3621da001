"""Figure: the memories of one GPU, with sizes and rates as `doctor` knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from suite.report.style import MUTED
from validation.figures.parts import BLUE, GREEN, ORANGE, PURPLE, SMALL, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Level(NamedTuple):
    """One memory: whose it is, its size, and its rate if that is known."""

    name: str
    of: str
    size: str
    rate: str
    fill: str


def levels(device: Mapping[str, Any], measured_gb_per_s: float | None) -> list[Level]:
    """The memories from the fastest to the largest. device: a device as `cuda_driver.devices` describes it.

    The rate of shared memory is that of 32 banks of 4 bytes in each cycle; that of device memory is measured, or else
    follows from its clock.
    """
    a = device["attributes"]
    sms, clock = a["sm_count"], a["clock_khz"] * 1e3
    shared = sms * 32 * 4 * clock / 1e12
    in_theory = 2 * a["memory_clock_khz"] * 1e3 * a["memory_bus_bits"] / 8 / 1e12
    rate = f"{measured_gb_per_s / 1e3:.2g} TB/s, measured" if measured_gb_per_s else f"{in_theory:.2g} TB/s, in theory"
    registers = a["registers_per_sm"] * 4
    return [
        Level("registers", "of a thread", f"{registers >> 10} KiB an SM, {_mib(registers * sms)} in all", "", ORANGE),
        Level(
            "shared memory",
            "of a block",
            f"{a['shared_per_sm'] >> 10} KiB an SM, {_mib(a['shared_per_sm'] * sms)} in all",
            f"{shared:.2g} TB/s, 128 bytes a cycle and SM",
            GREEN,
        ),
        Level("L2 cache", "of the device", _mib(a["l2_bytes"]), "", PURPLE),
        Level("device memory", "of the device", f"{device['memory_bytes'] / 2**30:.0f} GiB", rate, BLUE),
    ]


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


def memory(device: Mapping[str, Any], measured_gb_per_s: float | None) -> Figure:
    figure, ax = sheet(7.2, 2.9, (36, 14.5))
    label(ax, 18, 13.8, device["name"], weight="bold")
    for i, level in enumerate(levels(device, measured_gb_per_s)):
        width, y = 8 + 4.8 * i, 10.2 - 3.1 * i
        box(ax, 12 - width / 2, y, width, 2.7, fill=level.fill)
        label(ax, 12, y + 1.75, level.name, weight="bold")
        label(ax, 12, y + 0.75, level.of, fontsize=SMALL, color=MUTED)
        label(ax, 24.8, y + 1.75, level.size, ha="left", fontsize=SMALL)
        label(ax, 24.8, y + 0.75, level.rate, ha="left", fontsize=SMALL, color=MUTED)
    return figure
