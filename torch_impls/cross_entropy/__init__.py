"""The cross entropy of each row of logits with its target, and the gradient of the mean, by torch's autograd."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from torch_impls._runtime.losses import check_cross_entropy

VENDOR = "PyTorch"

Logits = Float[Tensor, "T V"]
Loss = Float[Tensor, "T"]
Target = Int64[Tensor, "T"]


def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.
    float32, float16 or bfloat16, any strides. Logits are converted to float32 first: in 16 bits torch would round the
    logarithms of probabilities. The gradient is rounded once. Raises ValueError for other shapes and dtypes. A target
    outside [0, V) is an IndexError of torch on a CPU, and an assertion in its kernel on a GPU.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    if logits.numel() == 0:
        return logits.new_zeros(len(logits), dtype=torch.float32), logits.new_empty(logits.shape)
    with torch.enable_grad():
        wide = logits.detach().float().contiguous().requires_grad_()
        loss = torch.nn.functional.cross_entropy(
            wide, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="none"
        )
        share = (target != ignore_index).sum().clamp(min=1).reciprocal()
        (dlogits,) = torch.autograd.grad(loss, wide, share.expand(len(loss)))
    return loss.detach(), dlogits.to(logits.dtype)
