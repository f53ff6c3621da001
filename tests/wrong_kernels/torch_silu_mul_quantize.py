"""silu_mul_quantize in PyTorch: another product, a product that is rounded too early, and mistakes of quantize."""

import torch
from torch import Tensor

from wrong_kernels import Wrong, torch_quantize

SHAPE = (9, 264)
MISTAKES = {
    "gelu": Wrong("the activation is gelu", "value", SHAPE),
    "sigmoid_alone": Wrong("the gate is the activation", "value", SHAPE),
    "exchanged": Wrong("the activation is of b", "value", SHAPE),
    "no_b": Wrong("b is left out", "value", SHAPE),
    "product_in_bfloat16": Wrong("two kernels: the product is stored in bfloat16", "value", SHAPE, dtype="bfloat16"),
    "act_in_bfloat16": Wrong("silu(a) is rounded to bfloat16", "value", SHAPE, dtype="bfloat16"),
    "sigmoid_in_bfloat16": Wrong("the sigmoid is computed in bfloat16", "value", SHAPE, dtype="bfloat16"),
    "scale_of_a": Wrong("the scale is that of silu(a)", "value", SHAPE),
    "power_of_two": Wrong("the scale is rounded up to a power of two", "value", SHAPE),
    "largest_240": Wrong("the largest code is that of float8_e4m3fnuz", "value", SHAPE),
    "one_scale": Wrong("all rows have the scale of the matrix", "value", SHAPE, inputs="uneven"),
    "signed_maximum": Wrong("the largest number, not the largest magnitude", "value", SHAPE),
    "rows_for_columns": Wrong("a group of 128 has the scale of its row", "value", SHAPE, options={"group": "128"}),
    "truncated": Wrong("codes are truncated", "value", SHAPE, options={"to": "int8"}),
    "nan_lost": Wrong("a NaN does not count for the scale", "value", SHAPE, inputs="nan"),
}


def make(mistake: str):
    coded = torch_quantize.make(mistake if mistake in torch_quantize.MISTAKES else "")

    def silu_mul_quantize(a: Tensor, b: Tensor, *, group: str, to: str) -> tuple[Tensor, ...]:
        x, y = a.double(), b.double()
        if mistake == "exchanged":
            x, y = y, x
        gate = torch.sigmoid(x)
        if mistake == "sigmoid_in_bfloat16":
            gate = gate.bfloat16().double()
        active = torch.nn.functional.gelu(x) if mistake == "gelu" else gate if mistake == "sigmoid_alone" else x * gate
        if mistake == "act_in_bfloat16":
            active = active.bfloat16().double()
        product = active if mistake == "no_b" else active * y
        if mistake == "product_in_bfloat16":
            product = product.bfloat16()
        codes, scales = coded(product, group=group, to=to)
        return codes, coded(active, group=group, to=to)[1] if mistake == "scale_of_a" else scales

    return silu_mul_quantize
