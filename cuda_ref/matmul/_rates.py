"""Rates of a device relative to an H200, to which the constants of both models are fitted."""

from typing import NamedTuple, TypeVar

import torch

H200_CLOCK_KHZ, H200_DRAM_BYTES_PER_US = 1_980_000, 2 * 3201 * 6144 / 8
Costs = TypeVar("Costs", bound=NamedTuple)


class Rates(NamedTuple):
    """Name of a device; its highest clock and its memory bandwidth as multiples of an H200's."""

    name: str = "NVIDIA H200"
    clock: float = 1.0
    dram: float = 1.0


def rates_of(device: torch.device | None) -> Rates:
    """The rates of a device, from its driver; without a device those of an H200."""
    if device is None:
        return Rates()
    has = torch.cuda.get_device_properties(device)
    dram = 2 * has.memory_clock_rate / 1000 * has.memory_bus_width / 8  # two transfers per clock
    return Rates(has.name, has.clock_rate / H200_CLOCK_KHZ, dram / H200_DRAM_BYTES_PER_US)


def scaled(costs: Costs, rates: Rates) -> Costs:
    """Constants for a device: `dram_*` rates scale with its memory bandwidth, `sm_*` rates with its clock."""
    factors = {"sm": rates.clock, "dram": rates.dram}
    return costs._replace(**{x: getattr(costs, x) * factors.get(x.split("_")[0], 1.0) for x in costs._fields})
