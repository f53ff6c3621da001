"""Computes rates and the distance to the hardware's limit, from the times of a row and the size of its case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.problem.ranked import RankedOperation
from suite.results.row import Row

if TYPE_CHECKING:
    from suite.hardware import Peaks
    from suite.problem.case import Case
    from suite.problem.operation import Operation

COLD = "cold"


def rates(
    row: Row, operation: Operation, case: Case, device_name: str, *, ceilings: Peaks | None = None, arithmetic: str = ""
) -> dict[str, Any]:
    """The columns that follow from the times of `row`, for `Row.fill`. The row itself is not changed.

    Bytes and flops are those that the operation needs, not those that the implementation moves or computes. `ceilings`
    are peaks measured on this device; they are used where no datasheet peak is known. `arithmetic` is the arithmetic
    of a product if it differs from the case's dtype: `6 x bfloat16` is limited by a sixth of the bfloat16 rate.

    `suspect` is true for a time that is shorter than the datasheet's peak allows by more than its interval: then the
    timer is wrong. A measured peak that a row passes (`passes_ceiling`) is too low, and is not used as that row's
    limit. With a warm cache, memory is no limit.
    """
    columns: dict[str, Any] = {**_program_times(row), **_energy(row, operation, case)}
    if row.device_us:
        columns |= _speed(row.device_us, operation, case)
        columns |= _limit(row, row.device_us, operation, case, device_name, ceilings, arithmetic)
        columns |= _limits_of_load(row, operation, case, device_name, ceilings, arithmetic)
    return columns


def _program_times(row: Row) -> dict[str, float | None]:
    return {
        "program_us": _sum(row.to_device_us, row.latency_us, row.to_host_us),
        "program_pinned_us": _sum(row.to_device_pinned_us, row.latency_us, row.to_host_pinned_us),
    }


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _energy(row: Row, operation: Operation, case: Case) -> dict[str, float]:
    flops = operation.flops(case)
    return {"gflop_per_joule": flops / row.joules / 1e9} if row.joules and flops else {}


def _speed(device_us: float, operation: Operation, case: Case) -> dict[str, float]:
    """Rates of memory and arithmetic. Zero flops mean that the operation has none or that they are unknown."""
    flops = operation.flops(case)
    rate = {"gb_per_s": operation.bytes(case) / device_us / 1e3}
    if isinstance(operation, RankedOperation):
        rate["bus_gb_per_s"] = operation.transfer_bytes(case) / device_us / 1e3
    return {**rate, "tflops": flops / device_us / 1e6} if flops else rate


def passes_ceiling(
    row: Row, operation: Operation, case: Case, device_name: str, *, ceilings: Peaks | None, arithmetic: str = ""
) -> bool:
    """True if the time of `row` is shorter than a measured peak allows, by more than its interval."""
    limit = _limits(row, operation, case, device_name, ceilings, arithmetic)
    return limit is not None and not limit[2] and _is_passed(row, limit[0])


def _limits(
    row: Row, operation: Operation, case: Case, device_name: str, ceilings: Peaks | None, arithmetic: str
) -> tuple[float, str, bool] | None:
    """The shortest possible time in us, what limits it, and whether the datasheet says so; None if it is unknown.

    With a warm cache, memory limits no row that is faster than it allows: the time is then 0. Several ranks are also
    limited by the link between their GPUs; without a figure for that, their limit is unknown.
    """
    work = (device_name, *_work(operation, case, arithmetic))
    cited = hardware.limit(*work)
    limit = cited or hardware.limit(*work, ceilings)
    if limit is not None and isinstance(operation, RankedOperation):
        link = hardware.link_limit(device_name, operation.transfer_bytes(case))
        limit = max(limit, link) if link is not None else None
    if limit is None:
        return None
    least_us, what = limit
    beyond_memory = row.cache != COLD and what.startswith("memory") and least_us > (row.device_us or 0.0)
    return 0.0 if beyond_memory else least_us, what, cited is not None


def _work(operation: Operation, case: Case, arithmetic: str) -> tuple[int, int, str, str]:
    """Bytes, flops, dtype and precision of the least work; `arithmetic` as for `rates`."""
    products, dtype = (arithmetic or f"1 x {case.dtype}").split(" x ")
    return operation.bytes(case), int(products) * operation.flops(case), dtype, case.precision


def _limits_of_load(
    row: Row, operation: Operation, case: Case, device_name: str, ceilings: Peaks | None, arithmetic: str
) -> dict[str, float]:
    """The distance to the limit by the sampled clock, and that of the sustained time by the cited and sampled one.

    Inputs of sustained calls are never in the cache, so memory limits these calls whatever `row.cache` is.
    """
    work, columns = _work(operation, case, arithmetic), {}
    if row.clock_sm_mhz and row.device_us:
        least_us = hardware.limit_at_clock(device_name, *work, row.clock_sm_mhz)
        if least_us and (row.cache == COLD or least_us <= row.device_us):
            columns["of_limit_at_clock"] = least_us / row.device_us
    if row.sustained_us:
        found = hardware.limit(device_name, *work) or hardware.limit(device_name, *work, ceilings)
        if found and found[0]:
            columns["sustained_of_limit"] = found[0] / row.sustained_us
        if row.sustained_clock_mhz:
            least_us = hardware.limit_at_clock(device_name, *work, row.sustained_clock_mhz)
            if least_us:
                columns["sustained_of_limit_at_clock"] = least_us / row.sustained_us
    return columns


def _is_passed(row: Row, least_us: float) -> bool:
    return bool(row.device_us) and least_us > (row.device_us_high or row.device_us or 0.0)


def _limit(
    row: Row,
    device_us: float,
    operation: Operation,
    case: Case,
    device_name: str,
    ceilings: Peaks | None,
    arithmetic: str,
) -> dict[str, Any]:
    found = _limits(row, operation, case, device_name, ceilings, arithmetic)
    if found is None:
        return {"suspect": False}
    least_us, what, is_cited = found
    columns: dict[str, Any] = {"suspect": False, "limit": what}
    if _is_passed(row, least_us):
        if not is_cited:
            remark = f"faster than the device's {what}, which is not used: doctor --measure again"
            return columns | {"remarks": _with_remark(row.remarks, remark)}
        remark = f"suspect: faster than the device's {what} allows; the timer is wrong: doctor --timer"
        columns |= {"suspect": True, "remarks": _with_remark(row.remarks, remark)}
    return columns | {"of_limit": least_us / device_us} if least_us else columns


def _with_remark(remarks: str, remark: str) -> str:
    """`remark` in front of the other remarks, unless it is already among them."""
    return remarks if remarks.startswith(remark) else "; ".join(filter(None, (remark, remarks)))
