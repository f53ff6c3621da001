"""Returns a transposed view of the product of the transposed operands."""

OPERATION = "matmul"
TWIN_OF = "narrow_transposed"
GPU = False


def matmul(a, b, *, precision="ieee"):
    return (b.t() @ a.t()).t()
