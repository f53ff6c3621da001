"""Cross entropy and its gradient by liger-kernel, which overwrites the logits with the gradient of the sum."""

import torch
from liger_kernel.ops import LigerCrossEntropyFunction
from torch import Tensor

from triton_kernels._runtime.losses import check_cross_entropy
from triton_kernels.cross_entropy._count import Logits, Loss, Target, nothing

PEER = "liger-kernel"
REQUIRES = "cuda"  # it tests the targets and counts them on the device


def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits) as in the plain implementation. The logits are copied first, since the library overwrites them.

    Raises ValueError for other shapes and dtypes; NotImplementedError in 16 bits, where the library rounds the losses.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    if logits.dtype != torch.float32:
        raise NotImplementedError(f"cross_entropy: liger-kernel rounds the losses to {logits.dtype}")
    if logits.numel() == 0:
        return nothing(logits)
    with torch.enable_grad():
        own = logits.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
        loss: Tensor = LigerCrossEntropyFunction.apply(own, target, None, ignore_index, 0.0, label_smoothing, "none")[0]
        share = (target != ignore_index).sum().clamp(min=1).reciprocal()
        (dlogits,) = torch.autograd.grad(loss, own, share.expand(len(loss)).contiguous())
    return loss.detach(), dlogits
