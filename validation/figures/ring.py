"""Figure: a ring all-reduce of four devices, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.report.style import MUTED
from validation.figures.parts import BLUE, GREEN, GREY, SMALL, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVICES = 4


def states() -> list[list[list[set[int]]]]:
    """After each step, for each device and part, the devices whose numbers are in it. A send replaces or adds."""
    held = [[{device} for _ in range(DEVICES)] for device in range(DEVICES)]
    found = [[[set(part) for part in device] for device in held]]
    for step in range(2 * (DEVICES - 1)):
        adding = step < DEVICES - 1
        sent = [(device - step) % DEVICES for device in range(DEVICES)]
        parcels = [set(held[device][sent[device]]) for device in range(DEVICES)]
        for device in range(DEVICES):
            to = (device + 1) % DEVICES
            held[to][sent[device]] = parcels[device] | (held[to][sent[device]] if adding else set())
        found.append([[set(part) for part in device] for device in held])
    return found


def ring() -> Figure:
    figure, ax = sheet(7.2, 3.3, (43, 20))
    label(ax, 15.5, 19.2, "reduce-scatter: add what arrives", weight="bold")
    label(ax, 34, 19.2, "all-gather: pass on sums", weight="bold")
    for step, state in enumerate(states()):
        x = 0.8 + 6.1 * step
        label(ax, x + 2.3, 17.6, "begin" if step == 0 else f"step {step}", fontsize=SMALL, color=MUTED)
        for device, parts in enumerate(state):
            for part, have in enumerate(parts):
                full = len(have) == DEVICES
                fill = GREEN if full else BLUE if len(have) > 1 else GREY
                text = "sum" if full else "+".join(str(each) for each in sorted(have))
                box(ax, x + 1.15 * part, 14 - 3.9 * device, 1.15, 2.4, text, fill, fontsize=5.6, rotation=90)
    for device in range(DEVICES):
        label(ax, 0.4, 15.2 - 3.9 * device, str(device), fontsize=SMALL)
        if device < DEVICES - 1:
            arrow(ax, (3.1, 13.9 - 3.9 * device), (3.1, 12.6 - 3.9 * device))
    label(ax, 21.5, 0.5, "each row is a device with four parts of its array; in each step it sends one part to the "
          "device below, the last one to the first", fontsize=SMALL, color=MUTED)  # fmt: skip
    return figure
