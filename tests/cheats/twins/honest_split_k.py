"""Adds the products of two halves of K; the second half has the odd one."""

OPERATION = "matmul"
TWIN_OF = "narrow_odd_k"
GPU = False


def matmul(a, b, *, precision="ieee"):
    half = a.shape[1] // 2
    return (a[:, :half].float() @ b[:half].float() + a[:, half:].float() @ b[half:].float()).to(a.dtype)
