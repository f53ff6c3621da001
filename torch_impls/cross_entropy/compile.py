"""The cross entropy of each row of logits and its gradient, compiled by torch.compile from their formula."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.losses import check_cross_entropy
from torch_impls.cross_entropy import Logits, Loss, Target

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> tuple[Tensor, Tensor]:
    counted = target != ignore_index
    at = torch.where(counted, target, 0)[:, None]
    share = counted.sum().clamp(min=1).reciprocal()
    log_p = torch.log_softmax(logits.float(), dim=1)
    loss = -(1.0 - label_smoothing) * log_p.gather(1, at)[:, 0]
    if label_smoothing > 0.0:
        loss = loss - label_smoothing * log_p.mean(1)
    is_target = torch.arange(logits.shape[1], device=logits.device) == at
    gradient = log_p.exp() - label_smoothing / logits.shape[1] - torch.where(is_target, 1.0 - label_smoothing, 0.0)
    dlogits = torch.where(counted[:, None], gradient * share, 0.0)
    return torch.where(counted, loss, 0.0), dlogits.to(logits.dtype)


_losses = compiled("cross_entropy", _plain)


def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits) as in the plain implementation; float32 inside, rounded once.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements. A target outside [0, V) is an assertion in the kernel.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    return _losses(logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing)
