"""rms_norm_grad in PyTorch, written out, with the mistakes of backward passes."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (40, 136)
MISTAKES = {
    "no_second_term": Wrong("dx = s g", "value", SHAPE),
    "other_sign": Wrong("dx = s (g + xhat b)", "value", SHAPE),
    "sum_for_mean": Wrong("b is a sum over columns", "value", SHAPE),
    "scaled_twice": Wrong("dx is multiplied by s twice", "value", SHAPE, inputs="small"),
    "no_weight": Wrong("the weight is left out of dx", "value", SHAPE),
    "weight_at_the_end": Wrong("dx of the norm without weight, times the weight", "value", SHAPE),
    "dweight_of_x": Wrong("dweight = sum of dy x", "value", SHAPE, inputs="small"),
    "dweight_is_the_mean": Wrong("dweight is divided by M", "value", SHAPE),
    "last_rows_dropped": Wrong("dweight misses rows beyond the last whole block of 32", "value", SHAPE),
    "last_columns_dropped": Wrong("b misses columns beyond the last whole block of 128", "value", SHAPE),
    "dweight_in_16_bits": Wrong("each partial sum of dweight is rounded to 16 bits", "value", (1000, 24), "bfloat16"),
    "eps_of_another_norm": Wrong("eps is 1e-5", "value", SHAPE, inputs="eps"),
    "only_dx": Wrong("only dx is returned", "type", SHAPE),
}


def make(mistake: str):
    def rms_norm_grad(x: Tensor, weight: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, ...]:
        dtype, (m, n) = x.dtype, x.shape
        x, w, dy = (each.double() for each in (x, weight, dy))
        s = torch.rsqrt(x.square().mean(1, keepdim=True) + (1e-5 if mistake == "eps_of_another_norm" else eps))
        xhat = x * s
        g = dy if mistake in ("no_weight", "weight_at_the_end") else dy * w
        products = (g * xhat)[:, : n // 128 * 128] if mistake == "last_columns_dropped" else g * xhat
        b = products.sum(1, keepdim=True) / (1 if mistake == "sum_for_mean" else n)
        if mistake == "no_second_term":
            b = torch.zeros_like(b)
        dx = s * (g + xhat * b if mistake == "other_sign" else g - xhat * b)
        if mistake == "scaled_twice":
            dx = dx * s
        if mistake == "weight_at_the_end":
            dx = dx * w
        terms = dy * (x if mistake == "dweight_of_x" else xhat)
        rows = m // 32 * 32 if mistake == "last_rows_dropped" else m
        dweight = terms[:rows].sum(0) / (m if mistake == "dweight_is_the_mean" else 1)
        if mistake == "dweight_in_16_bits":
            dweight = torch.zeros_like(dweight)
            for row in terms:
                dweight = (dweight + row).to(dtype).double()
        return (dx.to(dtype),) if mistake == "only_dx" else (dx.to(dtype), dweight.to(dtype))

    return rms_norm_grad
