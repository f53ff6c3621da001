"""sigma(x W^T + b) in PyTorch, written out, with the mistakes of fused epilogues and of products."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (40, 48, 70)
SQUARE = (40, 48, 48)
LONG = (33, 65, 257)
MISTAKES = {
    "bias_added_twice": Wrong("once to the first sum of a tile, once at its end", "value", SHAPE),
    "no_bias": Wrong("the bias is left out", "value", SHAPE),
    "bias_in_one_part": Wrong("each of two parts of k adds the bias", "value", LONG, "bfloat16", inputs="bias_cancels"),
    "sigmoid_before_bias": Wrong("the bias is added to the sigmoid", "value", SHAPE),
    "bias_of_the_row": Wrong("bias[m] stands for bias[n]", "value", SHAPE),
    "bias_rounded": Wrong("float32, but the bias is rounded to bfloat16", "value", SHAPE),
    "weight_not_transposed": Wrong("x W for x W^T", "value", SQUARE),
    "sums_in_16_bits": Wrong(
        "each partial sum is rounded to 16 bits", "value", LONG, "bfloat16", inputs="bias_cancels"
    ),
    "last_k_block_dropped": Wrong("k beyond the last whole block of 32 is left out", "value", SHAPE),
    "first_k_block_twice": Wrong("the first 32 terms are added twice", "value", SHAPE),
    "no_sigmoid": Wrong("the logits are returned", "value", SHAPE),
    "sign_of_the_exponent": Wrong("1 / (1 + exp(z))", "value", SHAPE),
    "by_coarse_tanh": Wrong(
        "(1 + tanh(z / 2)) / 2 with 11 bits of tanh, as by tanh.approx",
        "value",
        (33, 65, 34),
        "bfloat16",
        inputs="saturated",
    ),
    "clamped": Wrong("logits are clamped to 8", "value", (33, 65, 34), inputs="saturated"),
    "product_in_tf32": Wrong("factors are rounded to 11 bits", "value", SHAPE),
    "nan_is_0": Wrong("a logit that is NaN counts as 0", "value", (33, 65, 34), inputs="nan"),
}


def make(mistake: str):
    def linear_sigmoid(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> Tensor:
        K, dtype = x.shape[1], x.dtype
        a, w, b = x.double(), weight.double(), bias.double()
        if mistake == "product_in_tf32":
            a, w = (each.half().double() for each in (a, w))  # 11 bits
        if mistake == "last_k_block_dropped":
            a, w = a[:, : K // 32 * 32], w[:, : K // 32 * 32]
        if mistake == "weight_not_transposed":
            w = w.T
        z = a @ w.T
        if mistake == "first_k_block_twice":
            z = z + a[:, :32] @ w[:, :32].T
        if mistake == "sums_in_16_bits":
            z = torch.zeros_like(z)
            for k in range(K):
                z = (z + a[:, k, None] * w[:, k]).to(dtype).double()
        if mistake == "bias_of_the_row":
            b = b[: len(a), None]
        if mistake == "bias_rounded":
            b = b.bfloat16().double()
        if mistake in ("bias_added_twice", "bias_in_one_part"):
            b = 2.0 * b
        if mistake not in ("no_bias", "sigmoid_before_bias"):
            z = z + b
        if mistake == "nan_is_0":
            z = z.nan_to_num(0.0)
        if mistake == "clamped":
            z = z.clamp(-8.0, 8.0)
        y = torch.sigmoid(-z if mistake == "sign_of_the_exponent" else z)
        if mistake == "by_coarse_tanh":
            y = 0.5 + 0.5 * torch.tanh(z / 2.0).half().double()
        if mistake == "no_sigmoid":
            y = z
        if mistake == "sigmoid_before_bias":
            y = y + b
        return y.to(dtype)

    return linear_sigmoid
