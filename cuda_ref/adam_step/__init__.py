"""A step of Adam in CUDA, the plain kernel: one thread updates one parameter."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_adam_step
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def adam_step(
    param: Float[Tensor, "..."],
    grad: Float[Tensor, "..."],
    m: Float[Tensor, "..."],
    v: Float[Tensor, "..."],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, "..."]]:
    """(param, m, v) after step number `step`, from 1 on, of Adam, or of AdamW if `decoupled`.

    g = grad + weight_decay param, or, decoupled, param (1 - lr weight_decay) first; m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2; param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps).

    Shapes: any, the same for all. torch first copies an input that is not contiguous. The results are contiguous.
    Dtypes: param and grad float32, float16 or bfloat16; m and v float32. All is computed in float32, and each result
    rounded once.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and steps; build.CudaError if the launch fails.
    Source: see adam_step.cu.
    """
    check_adam_step(param, grad, m, v, step=step)
    inputs = [each.contiguous() for each in (param, grad, m, v)]
    results = torch.empty_like(inputs[0]), torch.empty_like(inputs[2]), torch.empty_like(inputs[3])
    N = param.numel()
    if N > 0:
        build.launch(
            "adam_step/adam_step", "adam_step", param.device, *inputs, *results, N,
            step, lr, beta1, beta2, eps, weight_decay, decoupled, build.DTYPES[param.dtype],
        )  # fmt: skip
    return results
