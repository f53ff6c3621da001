"""A step of Adam, compiled by torch.compile to one kernel."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_adam_step
from torch_impls.adam_step._expression import stepped

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_adam_step = compiled("adam_step", stepped)


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
    """(param, m, v) after a step of Adam or AdamW: the plain implementation's formulas, row-major tensors of one shape.

    Another step number is compiled anew, since the corrections are constants of the kernel.

    Raises ValueError for other shapes, dtypes and steps; NotImplementedError for strides and for small tensors.
    """
    check_adam_step(param, grad, m, v, step=step)
    return _adam_step(
        param, grad, m, v,
        step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, decoupled=decoupled,
    )  # fmt: skip
