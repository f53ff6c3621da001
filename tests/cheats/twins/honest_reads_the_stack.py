"""Names its caller in the message of an error."""

import sys

OPERATION = "matmul"
TWIN_OF = "recognises_the_stack"
GPU = False


def matmul(a, b, *, precision="ieee"):
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: called from {sys._getframe(1).f_code.co_name} with {a.shape} and {b.shape}")
    return a @ b
