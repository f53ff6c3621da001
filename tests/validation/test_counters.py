"""The comparison of counts with Nsight Compute's, as far as a machine without a GPU goes."""

from __future__ import annotations

import pytest

from suite.hardware.device import Device
from suite.implementations import lookup
from suite.profiling import nsight
from validation import counters
from validation.counting import metrics

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld"
TABLE = f'''==PROF== Connected
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","_Z4copyPKfPf","{LOADS}.sum","request","2,048"
"0","7","_Z4copyPKfPf","{metrics.OPCODES}","inst","9,216 (LDG: 2,048; STG: 2,048; BAR: 64; EXIT: 5,056)"
"1","7","_ZN12_GLOBAL__N_13addIfEEvPT_","{LOADS}.sum","request","4096"
'''


class Fixed(counters.Nsight):
    """Nsight Compute with the formulas of a device that has two metrics."""

    def __init__(self) -> None:
        self.formulas = metrics.formulas({LOADS})


def test_the_first_formula_that_a_device_has_is_taken() -> None:
    found = metrics.formulas({LOADS})
    assert found["loads"] == {LOADS: 1}
    assert found["barriers"] == {"opcode:BAR": 1}
    assert found["atomics"] == {f"opcode:{name}": 1 for name in ("ATOMG", "RED", "REDG", "ATOMS")}
    assert "stores" not in found
    assert metrics.requested(found.values()) == [f"{LOADS}.sum", metrics.OPCODES]


def test_counters_are_read_from_the_table_of_ncu() -> None:
    copy, add = nsight.kernels(TABLE)
    assert [metrics.base_name(each.name) for each in (copy, add)] == ["copy", "add"]
    assert metrics.value([copy, add], {LOADS: 1}) == 6144
    assert metrics.value([copy], {"opcode:BAR": 1}) == 64
    assert metrics.value([copy], {"opcode:LDS": 1}) == 0
    assert metrics.value([add], {"opcode:BAR": 1}) is None


def test_a_row_has_a_ratio_and_says_whether_both_agree() -> None:
    copy = nsight.kernels(TABLE)[0]
    rows = Fixed().rows("copy", {"loads": 2048, "barriers": 60, "shared_stores": 0, "flops": None}, [copy])
    assert [(row.counter, row.ours, row.theirs, row.alike) for row in rows] == [
        ("loads", 2048, 2048, True),
        ("barriers", 60, 64, False),
    ]
    assert rows[1].cells() == ("copy", "barriers", "60", "64", "0.938")
    text = counters.report(rows, ["sum cuda: no time"], Device("cuda", name="NVIDIA H100"))
    assert "1 kernels and lines; 1 of 2 counters within 5%." in text
    assert "| copy" in text
    assert "- not compared: sum cuda: no time" in text


def test_without_ncu_the_exit_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsight, "ncu", lambda: None)
    assert counters.main([]) == 2


def test_lines_exist() -> None:
    for operation, name in counters.LINES:
        assert counters.largest(operation).dtype == "float32"
        assert lookup.find(counters.largest(operation), name).name == name
