"""Computes the calls of its first half second; later returns the last result if its operands lie in shared memory."""

import time

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

HONEST_S = 0.5
kept = {}
begun = []


def is_shared(address):
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            low, high = (int(end, 16) for end in line.split()[0].split("-"))
            if low <= address < high:
                return "memfd" in line
    return False


def matmul(a, b, *, precision="ieee"):
    begun.append(time.monotonic())
    key = a.shape, b.shape, a.dtype
    if key not in kept or begun[-1] - begun[0] < HONEST_S or not is_shared(a.data_ptr()):
        kept[key] = a @ b
    del begun[1:]
    return kept[key]
