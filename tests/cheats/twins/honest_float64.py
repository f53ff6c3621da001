"""Computes in float64 and rounds once: more precise than it must be."""

OPERATION = "matmul"
TWIN_OF = "precision_bfloat16_when_timed"
GPU = False


def matmul(a, b, *, precision="ieee"):
    return (a.double() @ b.double()).to(a.dtype)
