"""silu_mul in PyTorch: other activations, exchanged operands, one rounding too many."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (9, 136)
GELU = {"activation": "gelu_tanh"}
MISTAKES = {
    "exchanged": Wrong("the gate is taken of b", "value", SHAPE),
    "no_gate": Wrong("a b, without the gate", "value", SHAPE),
    "sigmoid_alone": Wrong("sigmoid(a) b", "value", SHAPE),
    "gate_of_minus_a": Wrong("a sigmoid(-a) b", "value", SHAPE),
    "sum": Wrong("silu(a) + b", "value", SHAPE),
    "rounded_before_the_product": Wrong("silu(a) is rounded before the product", "value", SHAPE, "bfloat16"),
    "overflow": Wrong("exp(a) / (1 + exp(a)) is inf / inf for large a", "not finite", SHAPE, inputs="saturated"),
    "half_precision": Wrong("float32, but a and b are kept in bfloat16", "value", SHAPE),
    "gelu_for_silu": Wrong("gelu stands for silu", "value", SHAPE),
    "silu_for_gelu": Wrong("silu stands for gelu", "value", SHAPE, options=GELU),
    "quick_gelu": Wrong("gelu by a sigmoid(1.702 a)", "value", SHAPE, options=GELU),
    "gelu_by_erf": Wrong("gelu is the exact one", "value", SHAPE, options=GELU),
}


def make(mistake: str):
    def silu_mul(a: Tensor, b: Tensor, *, activation: str = "silu") -> Tensor:
        dtype = a.dtype
        if mistake == "exchanged":
            a, b = b, a
        if mistake == "half_precision":
            a, b = a.bfloat16(), b.bfloat16()
        a, b = a.double(), b.double()
        gelu = (activation == "gelu_tanh") != (mistake in ("gelu_for_silu", "silu_for_gelu"))
        active = torch.nn.functional.gelu(a, approximate="tanh") if gelu else a * torch.sigmoid(a)
        if mistake == "no_gate":
            active = a
        if mistake == "sigmoid_alone":
            active = torch.sigmoid(a)
        if mistake == "gate_of_minus_a":
            active = a * torch.sigmoid(-a)
        if mistake == "quick_gelu":
            active = a * torch.sigmoid(1.702 * a)
        if mistake == "gelu_by_erf":
            active = torch.nn.functional.gelu(a)
        if mistake == "overflow":
            single = a.float().exp()
            active = a * (single / (1.0 + single)).double()
        if mistake == "rounded_before_the_product":
            active = active.to(dtype).double()
        return (active + b if mistake == "sum" else active * b).to(dtype)

    return silu_mul
