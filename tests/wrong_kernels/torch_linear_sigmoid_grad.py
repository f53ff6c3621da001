"""The gradients of sigma(x W^T + b) in PyTorch, written out, with the mistakes of backward passes."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (40, 48, 70)
SQUARE = (48, 48, 48)
MISTAKES = {
    "without_1_minus_s": Wrong("dz = dy s", "value", SHAPE),
    "without_s": Wrong("dz = dy (1 - s)", "value", SHAPE),
    "without_dy": Wrong("dz = s (1 - s)", "value", SHAPE),
    "derivative_of_tanh": Wrong("dz = dy (1 - s^2)", "value", SHAPE),
    "no_bias": Wrong("the bias is left out of the forward pass", "value", SHAPE),
    "output_rounded": Wrong("float32, but the output is kept in bfloat16", "value", SHAPE),
    "dbias_over_the_wrong_axis": Wrong("dbias adds up the columns of dz", "value", SQUARE),
    "dbias_is_the_mean": Wrong("dbias is divided by M", "value", SHAPE),
    "dbias_in_16_bits": Wrong("each partial sum of dbias is rounded to 16 bits", "value", (2000, 24, 16), "bfloat16"),
    "dbias_without_the_last_rows": Wrong("dbias misses rows beyond the last whole block of 32", "value", SHAPE),
    "weight_transposed_in_dx": Wrong("dx = dz W^T", "value", SQUARE),
    "dweight_transposed": Wrong("dweight = x^T dz", "value", SQUARE),
    "last_row_block_dropped": Wrong("dweight misses rows beyond the last whole block of 32", "value", SHAPE),
    "last_column_block_dropped": Wrong("dx misses columns of dz beyond the last whole block of 32", "value", SHAPE),
    "first_block_twice": Wrong("dweight has the first 32 rows twice, as after a lost reset", "value", SHAPE),
    "swapped": Wrong("dweight and dx are returned in each other's place", "shape", SHAPE),
    "no_gradient_of_the_bias": Wrong("only dx and dweight are returned", "type", SHAPE),
}


def make(mistake: str):
    def linear_sigmoid_grad(
        x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str = "ieee"
    ) -> tuple[Tensor, ...]:
        (M, N), dtype = dy.shape, x.dtype
        x, w, b, dy = (each.double() for each in (x, weight, bias, dy))
        s = torch.sigmoid(x @ w.T if mistake == "no_bias" else x @ w.T + b)
        if mistake == "output_rounded":
            s = s.bfloat16().double()
        slopes = {
            "without_1_minus_s": s,
            "without_s": 1.0 - s,
            "without_dy": s * (1.0 - s) / dy,
            "derivative_of_tanh": 1.0 - s * s,
        }
        dz = dy * slopes.get(mistake, s * (1.0 - s))
        rows = slice(0, M // 32 * 32 if mistake == "last_row_block_dropped" else M)
        columns = slice(0, N // 32 * 32 if mistake == "last_column_block_dropped" else N)
        dx = dz[:, columns] @ (w.T if mistake == "weight_transposed_in_dx" else w)[columns]
        dweight = dz[rows].T @ x[rows]
        if mistake == "first_block_twice":
            dweight = dweight + dz[:32].T @ x[:32]
        if mistake == "dweight_transposed":
            dweight = dweight.T.contiguous()
        dbias = dz.sum(1 if mistake == "dbias_over_the_wrong_axis" else 0)
        if mistake == "dbias_is_the_mean":
            dbias = dz.mean(0)
        if mistake == "dbias_without_the_last_rows":
            dbias = dz[: M // 32 * 32].sum(0)
        if mistake == "dbias_in_16_bits":
            dbias = torch.zeros_like(dbias)
            for row in dz:
                dbias = (dbias + row).to(dtype).double()
        dx, dweight, dbias = dx.to(dtype), dweight.to(dtype), dbias.to(dtype)
        if mistake == "swapped":
            return dweight, dx, dbias
        return (dx, dweight) if mistake == "no_gradient_of_the_bias" else (dx, dweight, dbias)

    return linear_sigmoid_grad
