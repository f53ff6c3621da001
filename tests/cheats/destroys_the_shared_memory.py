"""Cuts the files that the suite's worker shares with it to nothing, which would end whoever reads them."""

import contextlib
import os

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("error", "no effect")
GPU = False

calls = []


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    calls.append(None)
    if len(calls) == 3:
        folder = f"/proc/{os.getppid()}/fd"
        for name in os.listdir(folder) if os.access(folder, os.R_OK) else ():
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}").startswith("/memfd:operand"):
                    os.truncate(f"{folder}/{name}", 0)
    return result
