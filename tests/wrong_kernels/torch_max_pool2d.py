"""Max pooling in PyTorch, one maximum of two arrays for each tap, with the mistakes of indices and of padding."""

import math

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (2, 9, 7, 20, 3, 3, 2, 1)
OBLONG = (1, 8, 8, 16, 2, 3, 1, 0)
SQUARE = (1, 8, 8, 8, 2, 2, 2, 0)
WIDE = (2, 9, 7, 20, 4, 4, 2, 2)

MISTAKES = {
    "zeros_in_the_padding": Wrong("the padding is 0, which is larger than negative pixels", "value", SHAPE),
    "maximum_begins_with_zero": Wrong("the largest number so far is 0 at first", "value", SQUARE),
    "padding_off_by_one": Wrong("windows begin at p stride, as without padding", "value", SHAPE),
    "padding_twice": Wrong("windows begin one row and one column early", "value", SHAPE),
    "stride_ignored": Wrong("windows are one pixel apart", "value", SHAPE),
    "stride_of_the_window": Wrong("windows do not overlap: they are as far apart as they are large", "value", SHAPE),
    "r_and_s_exchanged": Wrong("rows of the window are taken for columns", "value", OBLONG),
    "last_row_dropped": Wrong("r goes to R - 2", "value", SHAPE),
    "last_column_dropped": Wrong("s goes to S - 2", "value", WIDE),
    "mean": Wrong("the mean of the window", "value", SQUARE),
    "minimum": Wrong("the smallest number of the window", "value", SQUARE),
    "magnitude": Wrong("the largest magnitude of the window", "value", SQUARE),
    "nan_lost": Wrong("a comparison that is false for NaN leaves it out", "value", SHAPE, inputs="nan"),
    "read_as_channels_first": Wrong("the memory of x is taken for (N, C, H, W)", "value", SQUARE),
    "by_way_of_bfloat16": Wrong("pixels are rounded to bfloat16", "value", SHAPE),
}


def make(mistake: str):
    def max_pool2d(x: Tensor, *, window: tuple[int, int], stride: int = 1, padding: int = 0) -> Tensor:
        N, H, W, C = x.shape
        R, S = window[::-1] if mistake == "r_and_s_exchanged" else window
        P, Q = (H + 2 * padding - window[0]) // stride + 1, (W + 2 * padding - window[1]) // stride + 1
        images = x.reshape(N, C, H, W).permute(0, 2, 3, 1) if mistake == "read_as_channels_first" else x
        if mistake == "by_way_of_bfloat16":
            images = images.bfloat16().to(x.dtype)
        before = padding + {"padding_off_by_one": -1, "padding_twice": 1}.get(mistake, 0)
        step = {"stride_ignored": 1, "stride_of_the_window": R}.get(mistake, stride)
        p, q = torch.arange(P, device=x.device)[:, None] * step, torch.arange(Q, device=x.device) * step
        taps = []
        for r in range(R - 1 if mistake == "last_row_dropped" else R):
            for s in range(S - 1 if mistake == "last_column_dropped" else S):
                h, w = p + r - before, q + s - before
                inside = ((h >= 0) & (h < H) & (w >= 0) & (w < W))[..., None]
                outside = 0.0 if mistake == "zeros_in_the_padding" else -math.inf
                taps.append(torch.where(inside, images[:, h.clamp(0, H - 1), w.clamp(0, W - 1)], outside))
        found = torch.stack(taps).float()
        if mistake == "nan_lost":
            found = found.nan_to_num(-math.inf)
        if mistake == "mean":
            return found.mean(0).to(x.dtype)
        if mistake == "minimum":
            return found.amin(0).to(x.dtype)
        if mistake == "magnitude":
            return found.abs().amax(0).to(x.dtype)
        if mistake == "maximum_begins_with_zero":
            found = found.clamp(min=0.0)
        return found.amax(0).to(x.dtype)

    return max_pool2d
