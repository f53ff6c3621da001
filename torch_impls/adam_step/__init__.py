"""A step of Adam by PyTorch, one operation after the other, as `torch.optim.Adam(foreach=False)` makes it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_adam_step
from torch_impls.adam_step._expression import stepped

VENDOR = "PyTorch"


def adam_step(
    param: Float[Tensor, ...],
    grad: Float[Tensor, ...],
    m: Float[Tensor, ...],
    v: Float[Tensor, ...],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Float[Tensor, ...], Float[Tensor, ...], Float[Tensor, ...]]:
    """(param, m, v) after step number `step`, from 1 on, of Adam, or of AdamW if `decoupled`.

    g = grad + weight_decay param, or, decoupled, param (1 - lr weight_decay) first; m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2; param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps).

    Any shape and strides, the same shape for all; the results are row-major. param and grad: float32, float16 or
    bfloat16; m and v: float32, as is all arithmetic. `torch.optim` with fused=True writes over its inputs, so no
    implementation here uses it.

    Raises ValueError for other shapes, dtypes and steps.
    """
    check_adam_step(param, grad, m, v, step=step)
    return stepped(
        *(each.contiguous() for each in (param, grad, m, v)),
        step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, decoupled=decoupled,
    )  # fmt: skip
