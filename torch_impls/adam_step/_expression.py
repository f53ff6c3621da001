"""The step of Adam as an expression of PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def stepped(
    param: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """(param, m, v) after a step, as torch.optim computes them, in float32."""
    p, g = param.float(), grad.float()
    if decoupled:
        p = p * (1.0 - lr * weight_decay)
    else:
        g = g.add(p, alpha=weight_decay)
    m = torch.lerp(m, g, 1.0 - beta1)
    v = (v * beta2).addcmul(g, g, value=1.0 - beta2)
    denominator = v.sqrt() / (1.0 - beta2**step) ** 0.5 + eps
    return torch.addcdiv(p, m, denominator, value=-lr / (1.0 - beta1**step)).to(param.dtype), m, v
