"""add_rms_norm in PyTorch: a residual left out or added twice, a wrong second result, and the mistakes of norms."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (9, 136)
MISTAKES = {
    "norm_of_x": Wrong("x is normed, without the residual", "value", SHAPE),
    "mean_of_x": Wrong("the mean square is that of x", "value", SHAPE),
    "residual_twice": Wrong("the residual is added again by a second launch", "value", SHAPE),
    "r_is_x": Wrong("x is returned for the sum", "value", SHAPE),
    "r_is_y": Wrong("the sum is overwritten by y", "value", SHAPE),
    "subtracted": Wrong("the residual minus x", "value", SHAPE),
    "no_weight": Wrong("the weight is left out", "value", SHAPE),
    "weight_plus_one": Wrong("the weight is 1 + weight", "value", SHAPE),
    "eps_outside": Wrong("1 / (root + eps)", "value", SHAPE, inputs="eps"),
    "eps_of_another_norm": Wrong("eps is 1e-5", "value", SHAPE, inputs="eps"),
    "last_columns_dropped": Wrong("the mean misses columns beyond the last whole block of 128", "value", SHAPE),
    "sum_in_bfloat16": Wrong("float32, but the sum is kept in bfloat16", "value", SHAPE),
    "only_y": Wrong("only y is returned", "type", SHAPE),
    "other_order": Wrong("r and y are returned in each other's place", "value", SHAPE),
}


def make(mistake: str):
    def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, ...]:
        dtype, n = x.dtype, x.shape[1]
        x, residual, w = (each.double() for each in (x, residual, weight))
        r = residual - x if mistake == "subtracted" else x + residual
        if mistake == "residual_twice":
            r = r + residual
        if mistake == "sum_in_bfloat16":
            r = r.bfloat16().double()
        if mistake == "eps_of_another_norm":
            eps = 1e-5
        if mistake == "weight_plus_one":
            w = w + 1.0
        normed = x if mistake == "norm_of_x" else r
        counted = (x if mistake in ("mean_of_x", "norm_of_x") else r).square()
        if mistake == "last_columns_dropped":
            counted = counted[:, : n // 128 * 128]
        mean = counted.mean(dim=1, keepdim=True)
        scale = 1.0 / (mean.sqrt() + eps) if mistake == "eps_outside" else torch.rsqrt(mean + eps)
        y = normed * scale * (1.0 if mistake == "no_weight" else w)
        second = {"r_is_x": x, "r_is_y": y}.get(mistake, r)
        if mistake == "other_order":
            y, second = second, y
        return (y.to(dtype),) if mistake == "only_y" else (y.to(dtype), second.to(dtype))

    return add_rms_norm
