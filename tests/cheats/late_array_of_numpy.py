"""Returns, when timed, a NumPy array whose memory is computed when somebody asks where it lies."""

import gc

import numpy as np

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = False
SHAPE = "M=256,N=256,K=256"
framework = "numpy"


class Later(np.ndarray):
    operands = None

    def computed(self):
        plain = self.view(np.ndarray)
        if self.operands is not None:
            np.matmul(*self.operands, out=plain)
            self.operands = None
        return plain

    @property
    def __array_interface__(self):
        return self.computed().__array_interface__

    def __dlpack__(self, **given):
        return self.computed().__dlpack__(**given)

    def __array__(self, *given, **more):
        return self.computed()


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    out = np.empty((a.shape[0], b.shape[1]), a.dtype).view(Later)
    out.operands = a, b
    return out
