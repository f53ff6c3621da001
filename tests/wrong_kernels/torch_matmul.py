"""C = A B in PyTorch, with mistakes in sums, layout and settings, and in the scales and types of float8."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

FLOAT8 = ("float8_e4m3fn", "promoted")
MISTAKES = {
    "partial_sums_in_bfloat16": Wrong(
        "the parts of a split K are rounded before they are added", "value", (64, 64, 1024), "bfloat16"
    ),
    "result_with_gaps": Wrong("the result is part of wider rows", "strides", (64, 48, 32)),
    "forgotten_epsilon": Wrong("1e-3 is added against a division by zero that is not there", "value", (64, 64, 64)),
    "result_in_float32": Wrong("float16 inputs, float32 result", "dtype", (64, 64, 64), "float16"),
    "last_row_missing": Wrong("only M - 1 rows are computed", "not finite", (65, 64, 64)),
    "random_order_of_k": Wrong(
        "sums in another order each time, and says to be deterministic",
        "not deterministic",
        (64, 64, 256),
        deterministic=True,
    ),
    "scaled_after_rounding": Wrong("sums are rounded to bfloat16, then scaled", "value", (64, 48, 64), *FLOAT8),
    "scale_of_b_forgotten": Wrong("only A's scale is applied", "value", (64, 48, 64), *FLOAT8),
    "scale_remembered": Wrong("the scales of the first call are kept for all", "value", (64, 48, 64), *FLOAT8),
    "read_as_e5m2": Wrong("bits of e4m3 taken for those of e5m2", "value", (64, 48, 64), *FLOAT8),
    "rounded_to_float16": Wrong("beyond 65504 there is only infinity", "not finite", (64, 48, 64), *FLOAT8),
    "tf32_switched_on": Wrong("allows tf32 to the library for the sake of speed", "value", (256, 256, 256), gpu=True),
}
PARTS = 4


def make(mistake: str):
    kept = []

    def matmul(a: Tensor, b: Tensor, *scales: Tensor, precision: str = "ieee") -> Tensor:
        if scales:
            return float8(a, b, *scales)
        if mistake == "result_with_gaps":
            return torch.nn.functional.pad(split_k(a, b), (0, 1))[:, :-1]
        flags = torch.backends.cuda.matmul
        before = flags.fp32_precision
        if mistake == "tf32_switched_on":
            flags.fp32_precision = "tf32"
        try:
            return split_k(a, b)
        finally:
            flags.fp32_precision = before

    def float8(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        if mistake == "read_as_e5m2":
            a, b = a.view(torch.float8_e5m2), b.view(torch.float8_e5m2)
        c = a.float() @ b.float()
        if mistake == "scaled_after_rounding":
            c = c.bfloat16()
        scale = scale_a if mistake == "scale_of_b_forgotten" else scale_a * scale_b
        kept.append(scale)
        c = c * kept[0 if mistake == "scale_remembered" else -1]
        return (c.half() if mistake == "rounded_to_float16" else c).bfloat16()

    def split_k(a: Tensor, b: Tensor) -> Tensor:
        if mistake == "random_order_of_k":
            order = torch.randperm(a.shape[1], device=a.device)
            a, b = a[:, order], b[order]
        parts = [x.float() @ y.float() for x, y in zip(a.chunk(PARTS, 1), b.chunk(PARTS, 0), strict=True)]
        if mistake == "partial_sums_in_bfloat16":
            parts = [part.bfloat16() for part in parts]
        c = sum(parts)
        if mistake == "forgotten_epsilon":
            c = c + 1e-3
        if mistake == "result_in_float32":
            return c
        out = a.new_empty(c.shape)
        rows = slice(len(c) - 1) if mistake == "last_row_missing" else slice(len(c))
        out[rows] = c[rows].to(a.dtype)
        return out

    return matmul
