"""rope in PyTorch: other pairs, other angles, and results that are read too early."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (2, 9, 3, 2, 32)
MISTAKES = {
    "other_layout": Wrong("neighbours are rotated where halves are meant", "value", SHAPE),
    "other_direction": Wrong("the sign of sin is lost", "value", SHAPE),
    "exchanged": Wrong("cos is read as sin, and sin as cos", "value", SHAPE),
    "k_not_rotated": Wrong("k is returned as it is", "value", SHAPE),
    "position_off_by_one": Wrong("token s has the angles of token s - 1", "value", SHAPE),
    "first_position": Wrong("each token has the angles of the first one, as in decoding", "value", SHAPE),
    "in_place": Wrong("the second half is computed from the rotated first half", "value", SHAPE),
    "angles_repeated": Wrong("cos and sin have each angle twice, as for pairs", "value", SHAPE),
    "products_rounded": Wrong("products are rounded to bfloat16", "value", SHAPE, "bfloat16"),
    "angles_rounded": Wrong("float32, but cos and sin are kept in bfloat16", "value", SHAPE),
    "second_half_copied": Wrong("the second half is not rotated", "value", SHAPE),
    "only_q": Wrong("only q is returned", "type", SHAPE),
    "heads_before_tokens": Wrong("results are (B, H, S, D)", "shape", SHAPE),
}


def make(mistake: str):
    def rope(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, layout: str = "halves", inverse: bool = False
    ) -> tuple[Tensor, ...]:
        dtype, half = q.dtype, q.shape[-1] // 2
        cos, sin = (each.double() for each in (cos, sin))
        if mistake == "angles_rounded":
            cos, sin = (each.bfloat16().double() for each in (cos, sin))
        if mistake == "position_off_by_one":
            cos, sin = cos.roll(1, 0), sin.roll(1, 0)
        if mistake == "first_position":
            cos, sin = cos[:1].expand(cos.shape), sin[:1].expand(sin.shape)
        if mistake == "angles_repeated":
            cos, sin = (each.repeat_interleave(2, 1)[:, :half] for each in (cos, sin))
        if mistake == "exchanged":
            cos, sin = sin, cos
        if inverse != (mistake == "other_direction"):
            sin = -sin
        cos, sin = cos[:, None], sin[:, None]
        neighbours = (layout == "pairs") != (mistake == "other_layout")

        def times(x: Tensor, y: Tensor) -> Tensor:
            return (x * y).bfloat16().double() if mistake == "products_rounded" else x * y

        def rotated(x: Tensor) -> Tensor:
            x = x.double()
            a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
            first = times(a, cos) - times(b, sin)
            second = times(b, cos) + times(first if mistake == "in_place" else a, sin)
            if mistake == "second_half_copied":
                second = b
            both = torch.stack([first, second], -1).flatten(-2) if neighbours else torch.cat([first, second], -1)
            return (both.transpose(1, 2).contiguous() if mistake == "heads_before_tokens" else both).to(dtype)

        if mistake == "only_q":
            return (rotated(q),)
        return rotated(q), k.clone() if mistake == "k_not_rotated" else rotated(k)

    return rope
