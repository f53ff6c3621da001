"""rms_norm_quantize in PyTorch: another norm, a norm that is rounded too early, and mistakes of quantize."""

import torch
from torch import Tensor

from wrong_kernels import Wrong, torch_quantize

SHAPE = (9, 264)
MISTAKES = {
    "no_weight": Wrong("the weight is left out", "value", SHAPE),
    "weight_plus_one": Wrong("the weight is 1 + weight", "value", SHAPE),
    "no_eps": Wrong("eps is left out", "value", SHAPE, inputs="small"),
    "divided_by_n_minus_1": Wrong("the mean is over N - 1", "value", SHAPE),
    "mean_subtracted": Wrong("the mean is subtracted", "value", SHAPE),
    "last_columns_dropped": Wrong("columns beyond the last whole 128 do not count", "value", SHAPE),
    "norm_in_bfloat16": Wrong("two kernels: the norm is stored in bfloat16", "value", SHAPE, dtype="bfloat16"),
    "rounded_before_the_weight": Wrong("x * scale is rounded to bfloat16", "value", SHAPE, dtype="bfloat16"),
    "factor_in_bfloat16": Wrong("the factor of a row is rounded to bfloat16", "value", SHAPE, dtype="bfloat16"),
    "power_of_two": Wrong("the scale is rounded up to a power of two", "value", SHAPE),
    "largest_240": Wrong("the largest code is that of float8_e4m3fnuz", "value", SHAPE),
    "signed_maximum": Wrong("the largest number, not the largest magnitude", "value", SHAPE),
    "rows_for_columns": Wrong("a group of 128 has the scale of its row", "value", SHAPE, options={"group": "128"}),
    "truncated": Wrong("codes are truncated", "value", SHAPE, options={"to": "int8"}),
    "nan_lost": Wrong("a NaN does not count for the scale", "value", SHAPE, inputs="nan"),
}


def make(mistake: str):
    coded = torch_quantize.make(mistake if mistake in torch_quantize.MISTAKES else "")

    def rms_norm_quantize(x: Tensor, weight: Tensor, *, eps: float, group: str, to: str) -> tuple[Tensor, ...]:
        wide, n = x.double(), x.shape[1]
        if mistake == "mean_subtracted":
            wide = wide - wide.mean(dim=1, keepdim=True)
        counted = wide[:, : n // 128 * 128] if mistake == "last_columns_dropped" else wide
        over = n - 1 if mistake == "divided_by_n_minus_1" else counted.shape[1]
        mean = counted.square().sum(dim=1, keepdim=True) / over
        factor = torch.rsqrt(mean + (0.0 if mistake == "no_eps" else eps))
        if mistake == "factor_in_bfloat16":
            factor = factor.bfloat16().double()
        normed = wide * factor
        if mistake == "rounded_before_the_weight":
            normed = normed.bfloat16().double()
        if mistake != "no_weight":
            normed = normed * (weight.double() + (1.0 if mistake == "weight_plus_one" else 0.0))
        return coded(normed.bfloat16() if mistake == "norm_in_bfloat16" else normed, group=group, to=to)

    return rms_norm_quantize
