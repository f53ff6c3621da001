"""A step of Adam in PyTorch, with the mistakes of its corrections, of eps and of the weight decay."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (1025,)
ADAMW = {"adamw": True}
MISTAKES = {
    "no_correction": Wrong("neither moment is corrected for its bias", "value", SHAPE),
    "only_m_corrected": Wrong("v is not corrected for its bias", "value", SHAPE),
    "correction_of_the_step_before": Wrong("step counts from 0", "value", SHAPE),
    "correction_of_one_step": Wrong("1 - beta1 instead of 1 - beta1^step", "value", SHAPE),
    "ascent": Wrong("the step is added", "value", SHAPE),
    "no_root": Wrong("m is divided by v", "value", SHAPE),
    "old_m": Wrong("the parameters move by the m before the step", "value", SHAPE),
    "eps_left_out": Wrong("v of 0 divides by 0", "value", SHAPE, inputs="resting"),
    "eps_inside_the_root": Wrong("sqrt(v + eps)", "value", SHAPE, inputs="eps"),
    "eps_before_the_correction": Wrong("(sqrt(v) + eps) is corrected", "value", SHAPE, inputs="eps"),
    "betas_exchanged": Wrong("beta1 of v, beta2 of m", "value", SHAPE),
    "decay_left_out": Wrong("weight_decay is not used", "value", SHAPE, options=ADAMW),
    "decay_without_lr": Wrong("AdamW shrinks the parameters by weight_decay alone", "value", SHAPE, options=ADAMW),
    "decay_in_the_gradient": Wrong("Adam's decay for AdamW's", "value", SHAPE, options=ADAMW),
    "moments_in_bfloat16": Wrong("m and v are stored in the type of the parameters", "value", SHAPE, "bfloat16"),
    "rest_in_float32": Wrong("1 - beta2 is computed in float32", "value", SHAPE, inputs="first_step"),
}


def make(mistake: str):
    def adam_step(
        param: Tensor,
        grad: Tensor,
        m: Tensor,
        v: Tensor,
        *,
        step: int,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        p, g = param.double(), grad.double()
        if mistake == "betas_exchanged":
            beta1, beta2 = beta2, beta1
        if mistake == "decay_left_out":
            weight_decay = 0.0
        if decoupled and mistake != "decay_in_the_gradient":
            p = p * (1.0 - (1.0 if mistake == "decay_without_lr" else lr) * weight_decay)
        else:
            g = g + weight_decay * p
        rest2 = 1.0 - beta2
        if mistake == "rest_in_float32":
            rest2 = float(1.0 - torch.tensor(beta2, device="cpu"))
        new_m, new_v = beta1 * m.double() + (1.0 - beta1) * g, beta2 * v.double() + rest2 * g * g
        if mistake == "moments_in_bfloat16":
            new_m, new_v = (each.float().bfloat16().double() for each in (new_m, new_v))
        steps = step - 1 if mistake == "correction_of_the_step_before" else step
        correction1, correction2 = 1.0 - beta1**steps, 1.0 - beta2**steps
        if mistake in ("no_correction", "only_m_corrected"):
            correction1, correction2 = (1.0 if mistake == "no_correction" else correction1), 1.0
        if mistake == "correction_of_one_step":
            correction1 = 1.0 - beta1
        corrected = new_v / correction2
        denominator = corrected.sqrt() + eps
        if mistake == "no_root":
            denominator = corrected + eps
        if mistake == "eps_left_out":
            denominator = corrected.sqrt()
        if mistake == "eps_inside_the_root":
            denominator = (corrected + eps).sqrt()
        if mistake == "eps_before_the_correction":
            denominator = (new_v.sqrt() + eps) / correction2**0.5
        moved = lr / correction1 * (m.double() if mistake == "old_m" else new_m) / denominator
        p = p + moved if mistake == "ascent" else p - moved
        return p.to(param.dtype), new_m.float(), new_v.float()

    return adam_step
