"""Computes on the host when timed, so that the device's records show two copies and no product."""

import gc

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=512,N=512,K=512"


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    return (a.cpu() @ b.cpu()).to(a.device)
