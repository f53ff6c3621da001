"""The counters of Nsight Compute that are defined as those of emulated kernels, and how to read them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence

from suite.profiling.nsight import Kernel

Formula = Mapping[str, int]
"""Metrics of Nsight Compute, or `opcode:NAME` for the instructions of that name, each with its factor in a sum."""
OPCODES = "sass__inst_executed_per_opcode"
_LSU = "l1tex__{}_pipe_lsu_mem_{}_op_{}".format
_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared"
_FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on".format

COUNTERS: Mapping[str, Sequence[Formula]] = {
    "warps": [{"smsp__warps_launched": 1}],
    "loads": [{_LSU("t_requests", "global", "ld"): 1}],
    "load_sectors": [{_LSU("t_sectors", "global", "ld"): 1}],
    "stores": [{_LSU("t_requests", "global", "st"): 1}],
    "store_sectors": [{_LSU("t_sectors", "global", "st"): 1}],
    "shared_loads": [{"smsp__inst_executed_op_shared_ld_pred_on_any": 1}],  # without those that no lane takes
    "shared_stores": [{"smsp__inst_executed_op_shared_st_pred_on_any": 1}],
    "conflicts": [
        {_WAVEFRONTS: 1, f"{_WAVEFRONTS}_ideal": -1},
        {_LSU("data_bank_conflicts", "shared", "ld"): 1, _LSU("data_bank_conflicts", "shared", "st"): 1},
    ],
    "atomics": [
        {f"smsp__inst_executed_op_{where}": 1 for where in ("generic_atom", "global_red", "shared_atom")},
        {"opcode:ATOMG": 1, "opcode:RED": 1, "opcode:REDG": 1, "opcode:ATOMS": 1},
    ],
    "barriers": [{"opcode:BAR": 1}],
    "divergent": [{"smsp__sass_branch_targets_threads_divergent": 1}],
    "flops": [{_FLOPS("fadd"): 1, _FLOPS("fmul"): 1, _FLOPS("ffma"): 2}],
}
"""Fields of `cuda_ref.build.counting.Counts`, each with formulas; the first of those that a device has is taken."""


def known(executable: str) -> frozenset[str]:
    """The metrics of the device, without suffixes."""
    done = subprocess.run([executable, "--query-metrics"], capture_output=True, text=True, check=False, timeout=60)
    return frozenset(re.findall(r"^(\w+__\w+)", done.stdout, re.MULTILINE))


def formulas(available: Collection[str]) -> dict[str, Formula]:
    """The formula of each counter that can be measured. Instructions can always be counted."""
    found: dict[str, Formula] = {}
    for name, choices in COUNTERS.items():
        for each in choices:
            if all(metric.startswith("opcode:") or metric in available for metric in each):
                found[name] = each
                break
    return found


def requested(chosen: Iterable[Formula]) -> list[str]:
    """The metrics to ask for, with suffixes."""
    names = dict.fromkeys(metric for each in chosen for metric in each)
    plain = [f"{name}.sum" for name in names if not name.startswith("opcode:")]
    return [*plain, *([OPCODES] if len(plain) < len(names) else [])]


def value(kernels: Sequence[Kernel], formula: Formula) -> float | None:
    """The formula's sum over kernels; None if Nsight Compute gave none of the metrics."""
    found = [
        (factor, number)
        for kernel in kernels
        for metric, factor in formula.items()
        if (number := _metric(kernel, metric)) is not None
    ]
    return sum(factor * number for factor, number in found) if found else None


def _metric(kernel: Kernel, metric: str) -> float | None:
    kind, _, opcode = metric.partition(":")
    if kind != "opcode":
        return _number(kernel.values.get(f"{metric}.sum", ("", ""))[0])
    text = kernel.values.get(OPCODES, kernel.values.get(f"{OPCODES}.sum", ("", "")))[0]
    found = re.findall(r"(\w[\w.]*)\s*:\s*([\d.,]+)", text)
    counts = [_number(count) or 0 for name, count in found if name.partition(".")[0] == opcode]
    return sum(counts) if found else None


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def base_name(mangled: str) -> str:
    """The name of a function without its namespaces and arguments: `copy` for `_Z4copyPKfPf`."""
    rest, name = re.sub(r"^_ZN?K?", "", mangled), mangled
    while match := re.match(r"(\d+)", rest):
        name, rest = rest[match.end() :][: int(match[1])], rest[match.end() + int(match[1]) :]
    return name
