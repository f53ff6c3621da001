"""linear_cross_entropy in PyTorch, by blocks of columns: sums that are not carried over, another mean, lost blocks."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (33, 136, 34)
BLOCK = 64
MISTAKES = {
    "sum_for_mean": Wrong("the gradients are not divided by the number of rows", "value", SHAPE),
    "mean_of_all_rows": Wrong("the mean is over all rows, ignored ones included", "value", SHAPE),
    "ignored_rows_kept": Wrong("ignored rows have gradients", "value", SHAPE),
    "no_target": Wrong("1 is not subtracted at the target", "value", SHAPE),
    "last_block_dropped": Wrong("the sum of exponentials misses the last block of columns", "value", SHAPE),
    "last_block_of_dx": Wrong("dx is overwritten by each block", "value", SHAPE),
    "dweight_of_sum": Wrong("dweight is not divided by the number of rows", "value", SHAPE),
    "sum_not_rescaled": Wrong("sums of blocks have maxima of their own", "value", SHAPE),
    "dx_in_16_bits": Wrong("dx is rounded after each block", "value", (33, 4160, 34), "bfloat16"),
    "no_maximum": Wrong("the maximum is not subtracted", "not finite", (33, 136, 34), inputs="large_logits"),
    "mean_losses": Wrong("the losses are divided by the number of rows that count", "value", SHAPE),
    "exchanged": Wrong("dweight is returned for dx", "shape", SHAPE),
}


def make(mistake: str):
    def linear_cross_entropy(
        x: Tensor, weight: Tensor, target: Tensor, *, ignore_index: int = -100
    ) -> tuple[Tensor, Tensor, Tensor]:
        counted = target != ignore_index
        rows, matrix = x.double(), weight.double()
        z = rows @ matrix.T
        parts = z.split(BLOCK, dim=1)
        kept = parts[:-1] if mistake == "last_block_dropped" else parts
        log_sum = torch.logsumexp(torch.stack([torch.logsumexp(each, 1) for each in kept]), 0)
        if mistake == "sum_not_rescaled":
            highest = z.amax(1)
            log_sum = highest + torch.stack([(each - each.amax(1, True)).exp().sum(1) for each in parts]).sum(0).log()
        if mistake == "no_maximum":
            log_sum = z.float().exp().sum(1).log().double()
        at = target.where(counted, 0)[:, None]
        loss = (log_sum - z.gather(1, at)[:, 0]).masked_fill(~counted, 0.0)
        dz = (z - log_sum[:, None]).exp()
        if mistake != "no_target":
            dz = dz.scatter_add(1, at, -counted.double()[:, None])
        if mistake != "ignored_rows_kept":
            dz = dz.masked_fill(~counted[:, None], 0.0)
        count = counted.sum().clamp(min=1)
        if mistake == "sum_for_mean":
            count = 1
        if mistake == "mean_of_all_rows":
            count = len(x)
        dz = dz / count
        dx = torch.zeros_like(rows)
        for some, block in zip(dz.split(BLOCK, dim=1), matrix.split(BLOCK), strict=True):
            dx = some @ block if mistake == "last_block_of_dx" else dx + some @ block
            if mistake == "dx_in_16_bits":
                dx = dx.bfloat16().double()
        dweight = dz.T @ rows * (counted.sum() if mistake == "dweight_of_sum" else 1)
        both = (dx.to(x.dtype), dweight.to(x.dtype))
        loss = loss / counted.sum() if mistake == "mean_losses" else loss
        return loss.float(), *(both[::-1] if mistake == "exchanged" else both)

    return linear_cross_entropy
