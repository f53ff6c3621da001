"""quantize in PyTorch: scales of other groups and of other codes, codes that are not rounded once to nearest."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from wrong_kernels import Wrong

SHAPE = (9, 264)
FLOAT8 = torch.float8_e4m3fn
MISTAKES = {
    "largest_240": Wrong("the largest code is that of float8_e4m3fnuz", "value", SHAPE),
    "power_of_two": Wrong("the scale is rounded up to a power of two", "value", SHAPE),
    "reciprocal": Wrong("the factor, and not the scale, is returned", "value", SHAPE),
    "floor": Wrong("the scale is at least 1e-4", "value", SHAPE, inputs="zero_groups"),
    "first_group": Wrong("the first group's scale is used for all", "value", SHAPE, options={"group": "128"}),
    "one_scale": Wrong("all rows have the scale of the matrix", "value", SHAPE, inputs="uneven"),
    "signed_maximum": Wrong("the largest number, not the largest magnitude", "value", SHAPE),
    "scale_in_bfloat16": Wrong("the scale is computed in bfloat16", "value", SHAPE),
    "last_columns": Wrong("columns beyond the last whole 128 do not count", "value", (40, 200)),
    "truncated": Wrong("codes are truncated", "value", SHAPE, options={"to": "int8"}),
    "no_sign": Wrong("codes of sizes", "value", SHAPE),
    "bfloat16_first": Wrong("quotients are rounded to bfloat16 first", "value", SHAPE),
    "rows_for_columns": Wrong("a group of 128 has the scale of its row", "value", SHAPE, options={"group": "128"}),
    "nan_lost": Wrong("a NaN does not count for the scale", "value", SHAPE, inputs="nan"),
    "only_codes": Wrong("only codes are returned", "type", SHAPE),
}


def make(mistake: str):
    def quantize(x: Tensor, *, group: str, to: str) -> tuple[Tensor, ...]:
        m, n = x.shape
        rows, columns = {"row": (1, n), "128": (1, 128), "128x128": (128, 128)}[group]
        most = 240.0 if mistake == "largest_240" else 448.0 if to == "float8_e4m3fn" else 127.0
        wide = x.double()
        counted = wide.clamp(min=0.0) if mistake == "signed_maximum" else wide.abs()
        if mistake == "nan_lost":
            counted = counted.nan_to_num(0.0)
        if mistake == "last_columns":
            counted = counted[:, : n // 128 * 128]
        scales = of_groups(counted, rows, columns, n) / most
        scales = scales.clamp(min=1e-4 if mistake == "floor" else 2.0**-126)
        if mistake == "power_of_two":
            scales = scales.log2().ceil().exp2()
        if mistake == "scale_in_bfloat16":
            scales = scales.bfloat16().double()
        if mistake == "first_group":
            scales = scales[:1, :1].expand(scales.shape)
        if mistake == "one_scale":
            scales = scales.max().expand(scales.shape)
        by = (counted.amax(dim=1, keepdim=True) / most).expand(m, n) if mistake == "rows_for_columns" else None
        if by is None:
            by = scales.repeat_interleave(rows, 0)[:m].repeat_interleave(columns, 1)[:, :n]
        quotients = (wide.abs() if mistake == "no_sign" else wide) / by
        if mistake == "bfloat16_first":
            quotients = quotients.bfloat16()
        limit = 448.0 if to == "float8_e4m3fn" else 127.0
        quotients = quotients.clamp(-limit, limit)
        if to == "int8":
            codes = (quotients.trunc() if mistake == "truncated" else quotients.round()).nan_to_num(0.0).to(torch.int8)
        else:
            codes = quotients.float().to(FLOAT8)
        second = (1.0 / scales if mistake == "reciprocal" else scales).float().contiguous()
        return (codes,) if mistake == "only_codes" else (codes, second)

    return quantize


def of_groups(sizes: Tensor, rows: int, columns: int, n: int) -> Tensor:
    """The largest number of each group of a matrix of n columns, of which the last may be missing."""
    m, kept = sizes.shape
    padded = pad(sizes, (0, n - kept + -n % columns, 0, -m % rows))
    return padded.view(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns).amax(dim=(1, 3))
