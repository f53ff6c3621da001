"""matmul, linear_sigmoid, its gradient, conv2d and lstm: tails, layouts, sizes that are fixed or exchanged."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d as torch_conv2d

from mistakes import Mistake


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() @ b.double()).to(a.dtype)


def beyond(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x with more rows or columns: the elements that follow in memory."""
    return torch.as_strided(x, shape, x.stride(), x.storage_offset())


def unmasked_k(a: Tensor, b: Tensor, *, precision: str) -> Tensor:
    """Neither operand is masked beyond K."""
    (m, k), n = a.shape, b.shape[1]
    whole = -(-k // 16) * 16
    return product(beyond(a, (m, whole)), beyond(b, (whole, n)))


def a_unmasked(a: Tensor, b: Tensor, *, precision: str) -> Tensor:
    """a is not masked beyond K, and b repeats its last row."""
    (m, k), more = a.shape, -a.shape[1] % 16
    return product(beyond(a, (m, k + more)), torch.cat((b, b[-1:].expand(more, -1))))


def last_columns(a: Tensor, b: Tensor, *, precision: str) -> Tensor:
    c, n = product(a, b), b.shape[1] // 8 * 8
    c[:, n:] = c[:, n - 1 : n]
    return c


def rows_of_width(a: Tensor, b: Tensor, *, precision: str) -> Tensor:
    return product(a, torch.as_strided(b, b.shape, (b.shape[1], 1), b.storage_offset()))


def one_more_in_vectors(a: Tensor, b: Tensor, *, precision: str) -> Tensor:
    return product(a, b) + 1


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.sigmoid(x.double() @ weight.double().T + bias.double()).to(x.dtype)


def linear_tail(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str) -> Tensor:
    y = linear(x, weight, bias)
    y[:, y.shape[1] // 8 * 8 :] = 0
    return y


def linear_grad(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    f, w, b, d = (each.double() for each in (x, weight, bias, dy))
    y = torch.sigmoid(f @ w.T + b)
    dz = d * y * (1 - y)
    return tuple(each.to(x.dtype).contiguous() for each in (dz @ w, dz.T @ f, dz.sum(0)))


def linear_grad_rows(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str) -> tuple[Tensor, ...]:
    dx, _, db = linear_grad(x, weight, bias, dy)
    return dx, linear_grad(x[:64], weight, bias, dy[:64])[1], db


def convolved(x: Tensor, w: Tensor, stride: int, padding: int | tuple[int, int]) -> Tensor:
    y = torch_conv2d(x.double().permute(0, 3, 1, 2), w.double().permute(0, 3, 1, 2), stride=stride, padding=padding)
    return y.permute(0, 2, 3, 1).to(x.dtype).contiguous()


def pointwise_without_stride(x: Tensor, w: Tensor, *, stride: int, padding: int, precision: str) -> Tensor:
    right = convolved(x, w, stride, padding)
    return convolved(x, w, 1, padding)[:, : right.shape[1], : right.shape[2]].contiguous()


def padded_at_the_end(x: Tensor, w: Tensor, *, stride: int, padding: int, precision: str) -> Tensor:
    """For an even window, as "same" padding: less before than after."""
    right = convolved(x, w, stride, padding)
    wide = torch.nn.functional.pad(x, (0, 0, padding - 1, padding + 1, padding - 1, padding + 1))
    return convolved(wide, w, stride, 0)[:, : right.shape[1], : right.shape[2]].contiguous()


def windows_exchanged(x: Tensor, w: Tensor, *, stride: int, padding: int, precision: str) -> Tensor:
    """Taps are read at (s R + r), not at (r S + s)."""
    k, r, s, c = w.shape
    return convolved(x, w.reshape(k, s, r, c).transpose(1, 2), stride, padding)


def one_image(x: Tensor, w: Tensor, *, stride: int, padding: int, precision: str) -> Tensor:
    return convolved(x[:1].expand(x.shape), w, stride, padding)


def wrong_batch_stride(x: Tensor, w: Tensor, *, stride: int, padding: int, precision: str) -> Tensor:
    """Images lie H C apart."""
    _, h, _, c = x.shape
    return convolved(torch.as_strided(x, x.shape, (h * c, *x.stride()[1:]), x.storage_offset()), w, stride, padding)


def lstm(x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    kind, steps = x.dtype, []
    x, w_ih, w_hh, bias, h, c = (each.double() for each in (x, w_ih, w_hh, bias, h, c))
    for each in x:
        i, f, g, o = (each @ w_ih.T + h @ w_hh.T + bias).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        steps.append(h)
    return tuple(each.to(kind).contiguous() for each in (torch.stack(steps), h, c))


CONV = (2, 9, 7, 16, 24, 3, 3, 1, 1)
KERNELS = [
    Mistake("K not masked", "matmul", (80, 48, 67), unmasked_k, "memory beside"),
    Mistake("K not masked in 16 bits", "matmul", (80, 48, 67), unmasked_k, r"memory beside", "bfloat16"),
    Mistake("K of a not masked", "matmul", (80, 48, 67), a_unmasked, r"^$"),
    Mistake("K tail", "matmul", (80, 48, 67), lambda a, b, *, precision: product(a[:, :64], b[:64]),
            r"the last 3 of K were left out"),
    Mistake("last columns repeated", "matmul", (80, 45, 64), last_columns,
            r"the last 5 columns of the result repeated the one before"),
    Mistake("b stored transposed", "matmul", (64, 48, 80), rows_of_width, r"b was read as if it was row-major",
            options={"layout": "nt"}),
    Mistake("one more", "matmul", (33, 1, 40), one_more_in_vectors, r"1 was added to the result"),
    Mistake("first row of a", "matmul", (80, 48, 64), lambda a, b, *, precision: product(a[:1].expand(a.shape), b),
            r"a at M = 0 was read for every M"),
    Mistake("a broadcast read as contiguous", "matmul", (33, 65, 34),
            lambda a, b, *, precision: product(torch.as_strided(a, a.shape, (34, 1), a.storage_offset()), b),
            r"a was read as if it was (row-major|contiguous)", inputs="broadcast"),
    Mistake("subnormals of a", "matmul", (33, 65, 34),
            lambda a, b, *, precision: product(torch.where(a.abs() < 2.0**-126, 0.0, a), b), r"subnormal",
            inputs="subnormal"),
    Mistake("bfloat16 through float16", "matmul", (80, 48, 67),
            lambda a, b, *, precision: product(a.half().float(), b.half().float()).to(a.dtype), r"float16", "bfloat16",
            prepare=lambda a, b: (a * 2.0**-16, b)),
    Mistake("N tail", "linear_sigmoid", (40, 45, 64), linear_tail, r"^as if \[0:40, 40:45\] was left 0"),
    Mistake("bias of column 0", "linear_sigmoid", (40, 45, 64),
            lambda x, w, b, *, precision: linear(x, w, b[:1].expand(b.shape)), r"bias at N = 0 was read for every N"),
    Mistake("64 rows of dweight", "linear_sigmoid_grad", (70, 40, 33), linear_grad_rows,
            r"the last 6 rows were left out of dweight"),
    Mistake("dy of row 0", "linear_sigmoid_grad", (70, 40, 33),
            lambda x, w, b, dy, *, precision: linear_grad(x, w, b, dy[:1].expand(dy.shape)),
            r"dy at M = 0 was read for every M"),
    Mistake("1 x 1 without its stride", "conv2d", (2, 9, 8, 16, 24, 1, 1, 2, 0), pointwise_without_stride,
            r"windows were 1 apart"),
    Mistake("padding of an even window", "conv2d", (2, 9, 8, 16, 24, 2, 2, 1, 1), padded_at_the_end,
            r"windows began one row and one column late"),
    Mistake("padding of a window of 4", "conv2d", (2, 9, 8, 16, 24, 4, 4, 1, 2), padded_at_the_end,
            r"windows began one row and one column late"),
    Mistake("R and S exchanged", "conv2d", (2, 9, 8, 16, 24, 2, 3, 1, 1), windows_exchanged,
            r"R and S of (the )?weights? were exchanged|weight was read as if R and S were exchanged"),
    Mistake("one image", "conv2d", CONV, one_image, r"x at N = 0 was read for every N"),
    Mistake("images too near", "conv2d", CONV, wrong_batch_stride, r"x was read 144 apart along N, not 1008"),
    Mistake("padding of H alone", "conv2d", CONV,
            lambda x, w, *, stride, padding, precision: torch.nn.functional.pad(
                convolved(x, w, stride, (padding, 0)), (0, 0, 1, 1)), r"was left 0"),
    Mistake("h0 ignored", "lstm", (5, 3, 8, 24), lambda x, wi, wh, b, h, c: lstm(x, wi, wh, b, h * 0, c),
            r"h0|initial"),
    Mistake("c0 of the first row", "lstm", (5, 3, 8, 24),
            lambda x, wi, wh, b, h, c: lstm(x, wi, wh, b, h, c[:1].expand(c.shape)),
            r"c0 at B = 0 was read for every B"),
    Mistake("last feature ignored", "lstm", (5, 3, 9, 24),
            lambda x, wi, wh, b, h, c: lstm(x[..., :8], wi[:, :8], wh, b, h, c),
            r"(x|w_ih) was read as 0 in the last of "),
]  # fmt: skip
