"""int4_matmul in PyTorch: codes in another order, scales and zero points of other groups, sums of fewer digits."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE, CANCELLING, GROWING = (33, 70, 300), (33, 70, 512), (5, 9, 4096)
KIND = {"dtype": "bfloat16"}
ZEROS = {"dtype": "bfloat16", "options": {"zeros": True}}
MISTAKES = {
    "codes_exchanged": Wrong("the upper half of a byte comes first", "value", SHAPE, **KIND),
    "lower_code_twice": Wrong("the shift of the second code is forgotten", "value", SHAPE, **KIND),
    "halves_of_k": Wrong("lower halves of bytes are taken for the first half of K", "value", SHAPE, **KIND),
    "no_zero": Wrong("zero points are left out", "value", SHAPE, **ZEROS),
    "zero_added": Wrong("zero points are added", "value", SHAPE, **ZEROS),
    "zero_8": Wrong("zero points are ignored: 8 is subtracted", "value", SHAPE, **ZEROS),
    "zero_plus_1": Wrong("zero points are stored less 1, as in some formats", "value", SHAPE, **ZEROS),
    "zero_not_scaled": Wrong("zero points are subtracted from scaled codes", "value", SHAPE, **ZEROS),
    "next_zero": Wrong("zero points are those of the group after", "value", SHAPE, **ZEROS),
    "signed_codes": Wrong("codes are taken for two's complement", "value", SHAPE, **KIND),
    "no_scale": Wrong("scales are left out", "value", SHAPE, **KIND),
    "divided": Wrong("the reciprocals of the scales are the factors", "value", SHAPE, **KIND),
    "first_group": Wrong("the scales of the first group are used for all", "value", SHAPE, **KIND),
    "next_group": Wrong("scales and zero points are those of the group after", "value", SHAPE, **ZEROS),
    "next_scale": Wrong("scales are those of the group after", "value", SHAPE, **ZEROS),
    "groups_reversed": Wrong("scales of the last group come first", "value", SHAPE, inputs="uneven", **KIND),
    "next_row": Wrong("a row of weights has the scales of the row after", "value", SHAPE, **KIND),
    "groups_of_64": Wrong("term k has the scale of group k // 64", "value", SHAPE, **KIND),
    "last_group_dropped": Wrong("terms beyond the last whole 128 are left out", "value", SHAPE, **KIND),
    "sums_of_groups_in_bfloat16": Wrong(
        "the sum of a group is bfloat16 before it is scaled", "value", CANCELLING, inputs="cancellation", **KIND
    ),
    "scaled_sums_in_bfloat16": Wrong(
        "the scale is applied to the sum of a group in bfloat16", "value", CANCELLING, inputs="cancellation", **KIND
    ),
    "sums_in_bfloat16": Wrong("the sum is kept in bfloat16", "value", GROWING, inputs="growing_sums", **KIND),
    "nan_lost": Wrong("a NaN counts as 0", "value", SHAPE, inputs="nan", **KIND),
    "float32_result": Wrong("the result is not rounded to x's type", "dtype", SHAPE, **KIND),
}


def make(mistake: str):
    def int4_matmul(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        m, k = x.shape
        codes = codes_of(weight, k, mistake)
        middle = torch.full_like(scale, 8.0) if zero is None or mistake == "zero_8" else zero.to(scale.dtype)
        middle, factors = changed_zero(middle, mistake).double(), changed_scale(scale.double(), mistake)
        values = x.double().nan_to_num(0.0) if mistake == "nan_lost" else x.double()
        factors = factors.nan_to_num(0.0) if mistake == "nan_lost" else factors
        size = 64 if mistake == "groups_of_64" else 128
        end = k // 128 * 128 if mistake == "last_group_dropped" else k
        acc = torch.zeros(m, len(weight), dtype=torch.float64, device=x.device)
        for start in range(0, end, size):
            span, group = slice(start, start + size), min(start // size, scale.shape[1] - 1)
            if mistake == "zero_not_scaled":
                w = codes[:, span] * factors[:, group, None] - middle[:, group, None]
                acc = acc + values[:, span] @ w.mT
                continue
            total = values[:, span] @ (codes[:, span] - middle[:, group, None]).mT
            if mistake == "sums_of_groups_in_bfloat16":
                total = total.bfloat16().double()
            total = total * factors[:, group]
            if mistake == "scaled_sums_in_bfloat16":
                total = total.bfloat16().double()
            acc = acc + total
            if mistake == "sums_in_bfloat16":
                acc = acc.bfloat16().double()
        return acc.float() if mistake == "float32_result" else acc.to(x.dtype)

    return int4_matmul


def codes_of(weight: Tensor, k: int, mistake: str) -> Tensor:
    """The codes with a mistake, (N, K) float64."""
    low, high = weight & 15, weight >> 4
    if mistake == "codes_exchanged":
        low, high = high, low
    if mistake == "lower_code_twice":
        high = low
    if mistake == "halves_of_k":
        return torch.cat((low, high), 1)[:, :k].double()
    codes = torch.stack((low, high), 2).flatten(1)[:, :k].double()
    return codes - 16.0 * (codes >= 8) if mistake == "signed_codes" else codes


def changed_zero(middle: Tensor, mistake: str) -> Tensor:
    """The zero points of all groups with a mistake."""
    if mistake in ("no_zero", "signed_codes"):
        return torch.zeros_like(middle)
    if mistake == "zero_added":
        return -middle
    if mistake == "zero_plus_1":
        return middle + 1.0
    return middle.roll(-1, 1) if mistake in ("next_zero", "next_group") else middle


def changed_scale(scale: Tensor, mistake: str) -> Tensor:
    """The scales of all groups with a mistake."""
    if mistake == "no_scale":
        return torch.ones_like(scale)
    if mistake == "divided":
        return 1.0 / scale
    if mistake == "first_group":
        return scale[:, :1].expand_as(scale)
    if mistake in ("next_group", "next_scale"):
        return scale.roll(-1, 1)
    if mistake == "groups_reversed":
        return scale.flip(1)
    return scale.roll(-1, 0) if mistake == "next_row" else scale
