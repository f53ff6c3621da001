"""cross_entropy in PyTorch: another mean, ignored rows that count, a wrong target or smoothing, missing columns."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (9, 136)
MISTAKES = {
    "sum_for_mean": Wrong("the gradient is not divided by the number of rows", "value", SHAPE),
    "mean_of_all_rows": Wrong("the mean is over all rows, ignored ones included", "value", SHAPE),
    "ignored_rows_kept": Wrong("ignored rows have the gradient of their softmax", "value", SHAPE),
    "no_target": Wrong("1 is not subtracted at the target", "value", SHAPE),
    "next_column": Wrong("the target is counted from 1", "value", SHAPE),
    "mean_losses": Wrong("the losses are divided by the number of rows too", "value", SHAPE),
    "no_smoothing": Wrong("the label smoothing is left out", "value", SHAPE, inputs="smoothing"),
    "smoothed_target_kept": Wrong("smoothing leaves the target's share as it is", "value", SHAPE, inputs="smoothing"),
    "hard_gradient": Wrong("smoothing is in the losses alone", "value", SHAPE, inputs="smoothing"),
    "usual_index": Wrong("targets of -100 are ignored, whatever the index", "value", SHAPE, inputs="ignore_index"),
    "nan_if_all_ignored": Wrong("the mean over no rows is 0 / 0", "not finite", SHAPE, inputs="all_ignored"),
    "no_maximum": Wrong("the maximum is not subtracted", "not finite", SHAPE, inputs="shifted"),
    "last_columns_dropped": Wrong("the sum misses columns beyond the last whole block of 128", "value", SHAPE),
    "log_in_16_bits": Wrong("logarithms are rounded, as torch does without widening", "value", SHAPE, "bfloat16"),
    "losses_in_16_bits": Wrong("losses are stored in bfloat16 on their way", "value", SHAPE, "bfloat16"),
    "only_losses": Wrong("only the losses are returned", "type", SHAPE),
}  # fmt: skip


def make(mistake: str):
    def cross_entropy(
        logits: Tensor, target: Tensor, *, ignore_index: int = -100, label_smoothing: float = 0.0
    ) -> tuple[Tensor, ...]:
        dtype, columns = logits.dtype, logits.shape[1]
        smoothing = 0.0 if mistake == "no_smoothing" else label_smoothing
        counted = target != (-100 if mistake == "usual_index" else ignore_index)
        at = (target.where(counted, 0) + (mistake == "next_column")).clamp(max=columns - 1)[:, None]
        z = logits.double()
        log_sum = torch.logsumexp(z[:, : columns // 128 * 128] if mistake == "last_columns_dropped" else z, 1, True)
        if mistake == "no_maximum":
            log_sum = z.float().exp().sum(1, True).log().double()
        log_p = z - log_sum
        if mistake == "log_in_16_bits":
            log_p = log_p.to(dtype).double()
        share = torch.full_like(z, smoothing / columns)
        of_target = 1.0 if mistake == "smoothed_target_kept" else 1.0 - smoothing
        q = share.scatter_add(1, at, torch.full_like(at, of_target, dtype=z.dtype))
        loss = -(q * log_p).sum(1).masked_fill(~counted, 0.0)
        if mistake == "hard_gradient":
            q = torch.zeros_like(z).scatter_add(1, at, torch.ones_like(at, dtype=z.dtype))
        gradient = log_p.exp() - (0.0 if mistake == "no_target" else q)
        if mistake != "ignored_rows_kept":
            gradient = gradient.masked_fill(~counted[:, None], 0.0)
        else:
            gradient = gradient.where(counted[:, None], log_p.exp())
        count = counted.sum()
        if mistake != "nan_if_all_ignored":
            count = count.clamp(min=1)
        if mistake == "sum_for_mean":
            count = 1
        if mistake == "mean_of_all_rows":
            count = len(loss)
        if mistake == "mean_losses":
            loss = loss / count
        if mistake == "losses_in_16_bits":
            loss = loss.bfloat16()
        dlogits = (gradient / count).to(dtype)
        return (loss.float(),) if mistake == "only_losses" else (loss.float(), dlogits)

    return cross_entropy
