"""Cross entropy and its gradient by quack-kernels: its forward pass, then its backward pass."""

from __future__ import annotations

import torch
from quack.cross_entropy import cross_entropy_bwd, cross_entropy_fwd
from torch import Tensor

from torch_impls._runtime.losses import check_cross_entropy
from torch_impls.cross_entropy import Logits, Loss, Target

PEER = "quack-kernels"
REQUIRES = "sm_90"


def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits) as in the plain implementation, in float32, rounded once.

    The backward pass reads the logits again. Raises ValueError for other shapes and dtypes; NotImplementedError for
    smoothing, which the library lacks.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    if label_smoothing:
        raise NotImplementedError("cross_entropy: quack-kernels has no label smoothing")
    if logits.numel() == 0:
        return logits.new_zeros(len(logits), dtype=torch.float32), logits.new_empty(logits.shape)
    logits, target = logits.contiguous(), target.contiguous()
    loss, log_sum = cross_entropy_fwd(logits, target, ignore_index=ignore_index, return_lse=True)
    share = (target != ignore_index).sum().clamp(min=1).reciprocal().expand(len(loss)).contiguous()
    both: tuple[Tensor, Tensor] = (loss, cross_entropy_bwd(logits, target, share, log_sum, ignore_index=ignore_index))
    return both
