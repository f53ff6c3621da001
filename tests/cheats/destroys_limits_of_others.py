"""Sets the size of files that the suite's other processes may write to nothing, so that they cannot go on."""

import os
import resource

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("undone", "no effect")
GPU = False


def of_the_suite(process):
    try:
        with open(f"/proc/{process}/cmdline", "rb") as command:
            return b"suite." in command.read()
    except OSError:
        return False


def matmul(a, b, *, precision="ieee"):
    if of_the_suite(os.getppid()):
        resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    return a @ b
