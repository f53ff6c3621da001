"""Leaves the last rows of matrices with more than 1,000 rows at zero, if they fill no tile of 128."""

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if a.shape[0] > 1000:
        result[a.shape[0] // 128 * 128 :] = 0
    return result
