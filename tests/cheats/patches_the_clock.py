"""Replaces the clocks of Python's time module with ones that stand still while it computes."""

import sys
import time

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("no effect", "disturbs its neighbours", "wrong", "error")
GPU = False

SHARE = 0.95
clocks = {name: getattr(time, name) for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")}
hidden_ns = 0


def hiding_ns():
    return clocks["perf_counter_ns"]() - hidden_ns


def patch():
    time.perf_counter_ns = hiding_ns
    time.monotonic_ns = lambda: clocks["monotonic_ns"]() - hidden_ns
    time.perf_counter = lambda: clocks["perf_counter"]() - hidden_ns / 1e9
    time.monotonic = lambda: clocks["monotonic"]() - hidden_ns / 1e9
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith("suite.timing") else ():
            if isinstance(value, type) and clocks["perf_counter_ns"] in (
                getattr(value.__init__, "__defaults__", 0) or ()
            ):
                value.__init__.__defaults__ = (hiding_ns,)  # a recorder that has taken the clock already


def matmul(a, b, *, precision="ieee"):
    global hidden_ns
    begin = clocks["perf_counter_ns"]()
    result = a @ b
    if time.perf_counter_ns is clocks["perf_counter_ns"]:
        patch()
    hidden_ns += int(SHARE * (clocks["perf_counter_ns"]() - begin))
    return result
