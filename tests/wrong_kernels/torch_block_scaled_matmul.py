"""block_scaled_matmul in PyTorch: scales of other rows, blocks and groups, and sums of fewer digits."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (33, 140, 300)
KIND = {"dtype": "float8_e4m3fn", "precision": "promoted"}
MISTAKES = {
    "no_scale_a": Wrong("the scales of a are left out", "value", SHAPE, **KIND),
    "no_scale_b": Wrong("the scales of b are left out", "value", SHAPE, **KIND),
    "divided": Wrong("the reciprocals of the scales are the factors", "value", SHAPE, **KIND),
    "first_group": Wrong("the scales of the first group are used for all", "value", SHAPE, **KIND),
    "next_group": Wrong("the scales are those of the group after", "value", SHAPE, **KIND),
    "groups_reversed": Wrong("scales of the last group come first", "value", SHAPE, inputs="uneven", **KIND),
    "next_row": Wrong("a row of a has the scales of the row after", "value", SHAPE, **KIND),
    "first_block": Wrong("all rows of b have the scales of the first 128", "value", SHAPE, **KIND),
    "next_block": Wrong("rows of b have the scales of the next 128", "value", SHAPE, **KIND),
    "exchanged": Wrong("scale_a is used for b, and scale_b for a", "value", (140, 140, 300), **KIND),
    "last_group_dropped": Wrong("terms beyond the last whole 128 are left out", "value", SHAPE, **KIND),
    "groups_of_64": Wrong("term k has the scales of group k // 64", "value", SHAPE, **KIND),
    "power_of_two": Wrong("scales are rounded up to powers of two", "value", SHAPE, **KIND),
    "scales_in_bfloat16": Wrong("scales are rounded to bfloat16", "value", SHAPE, inputs="cancellation", **KIND),
    "factors_in_bfloat16": Wrong(
        "codes times scales are bfloat16", "value", (33, 140, 512), inputs="cancellation", **KIND
    ),
    "sums_in_bfloat16": Wrong("the sum is kept in bfloat16", "value", (24, 32, 4096), inputs="exact_sums", **KIND),
    "nan_lost": Wrong("a NaN counts as 0", "value", SHAPE, inputs="nan", **KIND),
    "float32_result": Wrong("the result is not rounded to bfloat16", "dtype", SHAPE, **KIND),
}


def make(mistake: str):
    def block_scaled_matmul(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensor:
        (m, k), n = a.shape, len(b)
        blocks = scale_b.roll(-1, 0) if mistake == "next_block" else scale_b
        rows = scale_a.roll(-1, 0) if mistake == "next_row" else scale_a
        of_a, of_b = rows.double(), blocks.double().repeat_interleave(128, 0)[:n]
        if mistake == "exchanged":
            of_a, of_b = of_b, of_a
        if mistake == "first_block":
            of_b = scale_b[:1].double().expand(n, -1)
        of_a, of_b = (changed(each, mistake) for each in (of_a, of_b))
        if mistake == "no_scale_a":
            of_a = torch.ones_like(of_a)
        if mistake == "no_scale_b":
            of_b = torch.ones_like(of_b)
        x, y = a.double(), b.double()
        if mistake == "nan_lost":
            x, y, of_a, of_b = (each.nan_to_num(0.0) for each in (x, y, of_a, of_b))
        if mistake == "factors_in_bfloat16":
            x, y = (
                (codes * of.repeat_interleave(128, 1)[:, :k]).bfloat16().double()
                for codes, of in ((x, of_a), (y, of_b))
            )
            of_a, of_b = torch.ones_like(of_a), torch.ones_like(of_b)
        size = 64 if mistake == "groups_of_64" else 128
        end = k // 128 * 128 if mistake == "last_group_dropped" else k
        acc = torch.zeros(m, n, dtype=torch.float64, device=a.device)
        for start in range(0, end, size):
            span, group = slice(start, start + size), min(start // size, of_a.shape[1] - 1)
            acc = acc + x[:, span] @ y[:, span].mT * (of_a[:, group, None] * of_b[:, group])
            if mistake == "sums_in_bfloat16":
                acc = acc.bfloat16().double()
        return acc.float() if mistake == "float32_result" else acc.bfloat16()

    return block_scaled_matmul


def changed(scales: Tensor, mistake: str) -> Tensor:
    """The scales of all groups with a mistake."""
    if mistake == "divided":
        return 1.0 / scales
    if mistake == "first_group":
        return scales[:, :1].expand_as(scales)
    if mistake == "next_group":
        return scales.roll(-1, 1)
    if mistake == "groups_reversed":
        return scales.flip(1)
    if mistake == "power_of_two":
        return scales.log2().ceil().exp2()
    return scales.bfloat16().double() if mistake == "scales_in_bfloat16" else scales
