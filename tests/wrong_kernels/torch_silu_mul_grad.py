"""silu_mul_grad in PyTorch: other derivatives, factors left out, gradients in the wrong place."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (9, 136)
GELU = {"activation": "gelu_tanh"}
MISTAKES = {
    "slope_is_s": Wrong("the derivative is the sigmoid", "value", SHAPE),
    "slope_of_the_sigmoid": Wrong("the derivative is s (1 - s)", "value", SHAPE),
    "without_1_minus_s": Wrong("the derivative is s (1 + a)", "value", SHAPE),
    "other_sign": Wrong("the derivative is s (1 - a (1 - s))", "value", SHAPE),
    "da_without_b": Wrong("da = dy act'(a)", "value", SHAPE),
    "db_without_dy": Wrong("db = act(a)", "value", SHAPE),
    "db_without_gate": Wrong("db = dy a", "value", SHAPE),
    "in_place": Wrong("b is overwritten by da and read again for db", "value", SHAPE),
    "exchanged": Wrong("da and db are returned in each other's place", "value", SHAPE),
    "gate_in_bfloat16": Wrong("float32, but the sigmoid is kept in bfloat16", "value", SHAPE),
    "silu_for_gelu": Wrong("silu's gradient for gelu", "value", SHAPE, options=GELU),
    "inner_derivative": Wrong("gelu's polynomial has no derivative", "value", SHAPE, options=GELU),
    "only_da": Wrong("only da is returned", "type", SHAPE),
}


def make(mistake: str):
    def silu_mul_grad(a: Tensor, b: Tensor, dy: Tensor, *, activation: str = "silu") -> tuple[Tensor, ...]:
        dtype = a.dtype
        a, b, dy = (each.double() for each in (a, b, dy))
        w, inner = a, torch.ones_like(a)
        if activation == "gelu_tanh" and mistake != "silu_for_gelu":
            w, inner = 1.5957691216057308 * (a + 0.044715 * a**3), 1.5957691216057308 * (1.0 + 0.134145 * a**2)
        s = torch.sigmoid(w)
        if mistake == "gate_in_bfloat16":
            s = s.bfloat16().double()
        if mistake == "inner_derivative":
            inner = torch.ones_like(a)
        slopes = {
            "slope_is_s": s,
            "slope_of_the_sigmoid": s * (1.0 - s),
            "without_1_minus_s": s * (1.0 + a),
            "other_sign": s * (1.0 - a * (1.0 - s)),
        }
        da = dy * slopes.get(mistake, s + a * inner * s * (1.0 - s))
        da = da if mistake == "da_without_b" else da * b
        db = {"db_without_dy": a * s, "db_without_gate": dy * a, "in_place": dy * b * s}.get(mistake, dy * a * s)
        if mistake == "exchanged":
            da, db = db, da
        return (da.to(dtype),) if mistake == "only_da" else (da.to(dtype), db.to(dtype))

    return silu_mul_grad
