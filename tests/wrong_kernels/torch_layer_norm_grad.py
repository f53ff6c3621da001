"""layer_norm_grad in PyTorch, written out, with the mistakes of backward passes."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (40, 136)
MISTAKES = {
    "no_mean_of_g": Wrong("dx = s (g - xhat b)", "value", SHAPE),
    "no_second_term": Wrong("dx = s (g - a)", "value", SHAPE),
    "neither": Wrong("dx = s g", "value", SHAPE),
    "sum_for_mean": Wrong("b is a sum over columns", "value", SHAPE),
    "no_weight": Wrong("the weight is left out of dx", "value", SHAPE),
    "dweight_not_centered": Wrong("dweight = sum of dy x s", "value", SHAPE, inputs="shifted"),
    "dbias_of_g": Wrong("dbias adds dy times the weight", "value", SHAPE),
    "exchanged": Wrong("dbias and dweight are returned in each other's place", "value", SHAPE),
    "last_rows_dropped": Wrong("both sums miss rows beyond the last whole block of 32", "value", SHAPE),
    "cancelled": Wrong("float32, but the variance is E[x^2] - E[x]^2", "value", SHAPE, inputs="shifted"),
    "means": Wrong("dweight and dbias are divided by M", "value", SHAPE),
    "scale_in_bfloat16": Wrong("float32, but the scale is kept in bfloat16", "value", SHAPE),
    "no_dbias": Wrong("dbias is not returned", "type", SHAPE),
}


def make(mistake: str):
    def layer_norm_grad(x: Tensor, weight: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, ...]:
        dtype, (m, n) = x.dtype, x.shape
        single = x.float()
        x, w, dy = (each.double() for each in (x, weight, dy))
        c = x - x.mean(1, keepdim=True)
        variance = c.square().mean(1, keepdim=True)
        if mistake == "cancelled":
            variance = (single.square().mean(1, keepdim=True) - single.mean(1, keepdim=True).square()).double()
        s = torch.rsqrt(variance + eps)
        if mistake == "scale_in_bfloat16":
            s = s.bfloat16().double()
        xhat = c * s
        g = dy if mistake == "no_weight" else dy * w
        a = 0.0 if mistake in ("no_mean_of_g", "neither") else g.mean(1, keepdim=True)
        b = (g * xhat).sum(1, keepdim=True) / (1 if mistake == "sum_for_mean" else n)
        if mistake in ("no_second_term", "neither"):
            b = torch.zeros_like(b)
        dx = s * (g - a - xhat * b)
        rows = m // 32 * 32 if mistake == "last_rows_dropped" else m
        dweight = (dy * (x * s if mistake == "dweight_not_centered" else xhat))[:rows].sum(0)
        dbias = (dy * w if mistake == "dbias_of_g" else dy)[:rows].sum(0)
        if mistake == "means":
            dweight, dbias = dweight / m, dbias / m
        if mistake == "exchanged":
            dweight, dbias = dbias, dweight
        found = (dx.to(dtype), dweight.to(dtype), dbias.to(dtype))
        return found[:2] if mistake == "no_dbias" else found

    return layer_norm_grad
