"""Convolution of images in PyTorch, one product of matrices for each tap, with the mistakes of implicit products."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (2, 9, 7, 20, 24, 3, 3, 1, 1)
SQUARE = (1, 8, 8, 16, 8, 3, 3, 1, 1)
STRIDED = (1, 13, 11, 16, 8, 3, 3, 2, 1)

MISTAKES = {
    "padding_off_by_one": Wrong("windows begin at p + r, as without padding", "value", SHAPE),
    "taps_flipped": Wrong("a convolution as in mathematics: w[R - 1 - r, S - 1 - s]", "value", SHAPE),
    "dilated_by_the_stride": Wrong("taps are `stride` apart", "value", STRIDED),
    "stride_ignored": Wrong("windows are one pixel apart", "value", STRIDED),
    "last_channel_block_dropped": Wrong("channels beyond the last whole block of 16 are left out", "value", SHAPE),
    "h_and_w_exchanged": Wrong("a row of x is taken for a column", "value", SQUARE),
    "read_as_channels_first": Wrong("the memory of x is taken for (N, C, H, W)", "value", SQUARE),
    "weights_read_as_kcrs": Wrong("the memory of the weights is taken for (K, C, R, S)", "value", SQUARE),
    "sums_in_bfloat16": Wrong("sums are rounded after each tap", "value", SHAPE, "bfloat16"),
    "edge_repeated": Wrong("an index in the padding is clamped to the edge", "value", SHAPE),
    "rows_wrap_around": Wrong("left of a row is the end of the one above: only rows are tested", "value", SHAPE),
    "last_row_of_taps_dropped": Wrong("r goes to R - 2", "value", SHAPE),
}


def make(mistake: str):
    def conv2d(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, precision: str = "ieee") -> Tensor:
        (N, H, W, C), (K, R, S, _) = x.shape, weight.shape
        P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
        images, taps = x.float(), weight.float()
        if mistake == "read_as_channels_first":
            images = images.reshape(N, C, H, W).permute(0, 2, 3, 1)
        if mistake == "h_and_w_exchanged":
            images = images.transpose(1, 2)
        if mistake == "weights_read_as_kcrs":
            taps = taps.reshape(K, C, R, S).permute(0, 2, 3, 1)
        if mistake == "taps_flipped":
            taps = taps.flip(1, 2)
        if mistake == "last_channel_block_dropped":
            taps = taps[..., : C // 16 * 16]
            images = images[..., : C // 16 * 16]
        step = 1 if mistake == "stride_ignored" else stride
        apart = stride if mistake == "dilated_by_the_stride" else 1
        before = 0 if mistake == "padding_off_by_one" else padding
        p, q = torch.arange(P, device=x.device)[:, None] * step, torch.arange(Q, device=x.device) * step
        acc = torch.zeros(N, P, Q, K, device=x.device)
        for r in range(R - 1 if mistake == "last_row_of_taps_dropped" else R):
            for s in range(S):
                h, w = p + r * apart - before, q + s * apart - before
                inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                if mistake == "rows_wrap_around":
                    at = h * W + w
                    inside = (h >= 0) & (h < H) & (at >= 0) & (at < H * W)
                    h, w = at.clamp(0, H * W - 1) // W, at.clamp(0, H * W - 1) % W
                pixels = images[:, h.clamp(0, H - 1), w.clamp(0, W - 1)]
                if mistake != "edge_repeated":
                    pixels = pixels * inside[..., None]
                acc = acc + pixels @ taps[:, r, s].T
                if mistake == "sums_in_bfloat16":
                    acc = acc.bfloat16().float()
        out = acc.to(x.dtype)
        return out

    return conv2d
