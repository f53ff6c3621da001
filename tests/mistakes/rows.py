"""sum, softmax and norms: columns that count too often or not at all, maxima, constants, layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from mistakes import Mistake

ROWS = (9, 136)
FEW = (5, 40)


def total(x: Tensor, axis: int | None = None) -> Tensor:
    y = x.double()
    return (y.sum() if axis is None else y.sum(axis)).to(x.dtype)


def sum_of_dense_rows(x: Tensor, *, axis: int | None = None) -> Tensor:
    return total(torch.as_strided(x, x.shape, (x.stride(0), 1), x.storage_offset()), axis)


def sum_of_first_rows(x: Tensor, *, axis: int | None = None) -> Tensor:
    return total(x[:64], axis)


def softmax_by(x: Tensor, largest: Tensor, e_scale: float = 1.0) -> Tensor:
    e = torch.exp((x.float() - largest) * e_scale)
    return (e / e.sum(1, keepdim=True)).to(x.dtype)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.double(), 1).to(x.dtype).contiguous()


def online_softmax(x: Tensor) -> Tensor:
    f = x.float().contiguous()
    m, s = torch.full((len(f), 1), -torch.inf), torch.zeros(len(f), 1)
    for block in f.split(64, 1):
        n = torch.maximum(m, block.amax(1, keepdim=True))
        s = s * torch.exp(m - n) + torch.exp(block - n).sum(1, keepdim=True)
        m = n
    return (torch.exp(f - m) / s).to(x.dtype)


def zero_for_an_empty_sum(x: Tensor) -> Tensor:
    e = torch.exp(x.float() - x.float().amax(1, keepdim=True).clamp(min=0.0))
    s = e.sum(1, keepdim=True)
    return torch.where(s > 0, e / s, 0.0).to(x.dtype)


def narrow_rows_not_written(x: Tensor) -> Tensor:
    return softmax(x) if x.shape[1] >= 64 else torch.full_like(x, torch.nan).contiguous()


def long_rows_cut(x: Tensor) -> Tensor:
    y = softmax(x)
    y[:, 2048:] = 0
    return y


def first_block_minus_infinity(x: Tensor) -> tuple[Tensor]:
    x = x.clone()
    x[::2, :70] = -torch.inf
    return (x,)


def far_below_zero(x: Tensor) -> tuple[Tensor]:
    x = x.clone()
    x[1::2] -= 200.0
    return (x,)


def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, padded: int = 0, few: int | None = None) -> Tensor:
    f = x.double()
    n = f.shape[1] if few is None else few
    mean = f[:, :n].mean(1, keepdim=True)
    squares = (f - mean)[:, :n].square().sum(1, keepdim=True) + padded * mean.square()
    return ((f - mean) * torch.rsqrt(squares / n + eps) * weight.double() + bias.double()).to(x.dtype)


def rms(x: Tensor, weight: Tensor, eps: float, divisor: int | None = None) -> Tensor:
    f = x.double()
    mean = f.square().sum(1, keepdim=True) / (divisor or f.shape[1])
    return (f * torch.rsqrt(mean + eps) * weight.double()).to(x.dtype)


def offset_by_one(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return x + 1.0, weight, bias


BEYOND = r"{} columns were counted beyond the row, of 0, in the variance"
KERNELS = [
    Mistake("dense rows", "sum", ROWS, sum_of_dense_rows, r"x was read 1 apart along N",
            inputs="strided", options={"axis": "1"}, prepare=lambda x: (x.mT.contiguous().mT,)),
    Mistake("first 64 rows", "sum", (100, 33), sum_of_first_rows, r"the last 36 rows were left out",
            options={"axis": "0"}),
    Mistake("other axis", "sum", (48, 48), lambda x, *, axis: total(x, 1 - axis), r"axis was 1",
            options={"axis": "0"}),
    Mistake("first row for all", "sum", (40, 33), lambda x, *, axis: total(x[:1].expand(x.shape), axis),
            r"x at M = 0 was read for every M", options={"axis": "0"}),
    Mistake("first block minus infinity", "softmax", ROWS, online_softmax, r"began with a block of -inf",
            prepare=first_block_minus_infinity),
    Mistake("first block minus infinity in 16 bits", "softmax", ROWS, online_softmax, r"began with a block of -inf",
            "bfloat16", prepare=first_block_minus_infinity),
    Mistake("every row begins with minus infinity", "softmax", ROWS, online_softmax, "", "float32",
            prepare=lambda x: (torch.where(torch.arange(136) < 70, -torch.inf, x),)),
    Mistake("maximum from 0", "softmax", ROWS, lambda x: softmax_by(x, x.float().amax(1, keepdim=True).clamp(min=0)),
            r"the maximum began at 0", prepare=far_below_zero),
    Mistake("maximum from 0 with zeros", "softmax", ROWS, zero_for_an_empty_sum, r"the maximum began at 0",
            prepare=far_below_zero),
    Mistake("narrow rows not written", "softmax", FEW, narrow_rows_not_written, r"memory|^$"),
    Mistake("long rows cut", "softmax", (3, 2500), long_rows_cut, r"\[0:3, 2048:2500\] was left 0"),
    Mistake("row after row", "softmax", ROWS, lambda x: softmax(x.roll(1, 0)), r"shifted by 1 row"),
    Mistake("first row for all", "softmax", ROWS, lambda x: softmax(x[:1].expand(x.shape)),
            r"x at M = 0 was read for every M"),
    Mistake("padded variance", "layer_norm", (5, 100),
            lambda x, w, b, *, eps: norm(x, w, b, eps, padded=28), BEYOND.format(28)),
    Mistake("padded variance of shifted rows", "layer_norm", (5, 100),
            lambda x, w, b, *, eps: norm(x, w, b, eps, padded=28), BEYOND.format(28),
            prepare=offset_by_one),
    Mistake("padded variance to 1024", "layer_norm", (5, 300),
            lambda x, w, b, *, eps: norm(x, w, b, eps, padded=724), BEYOND.format(724),
            prepare=offset_by_one),
    Mistake("eps fixed at 1e-3", "layer_norm", ROWS, lambda x, w, b, *, eps: norm(x, w, b, 1e-3), r"eps was 0.001",
            inputs="small"),
    Mistake("eps fixed at 1e-6", "layer_norm", ROWS, lambda x, w, b, *, eps: norm(x, w, b, 1e-6), r"eps was 1e-0?6",
            inputs="small"),
    Mistake("weight of column 0", "layer_norm", ROWS,
            lambda x, w, b, *, eps: norm(x, w[:1].expand(w.shape), b, eps), r"weight at N = 0 was read for every N"),
    Mistake("bias tail", "layer_norm", ROWS,
            lambda x, w, b, *, eps: norm(x, w, torch.where(torch.arange(136) < 128, b, 0.0), eps),
            r"bias was read as 0 in the last 8 of N"),
    Mistake("statistics of 128 columns", "layer_norm", ROWS, lambda x, w, b, *, eps: norm(x, w, b, eps, few=128),
            r"the last 8 columns were missing in mean and variance"),
    Mistake("eps fixed", "rms_norm", ROWS, lambda x, w, *, eps: rms(x, w, 1e-5), r"eps was 1e-0?5", inputs="small"),
    Mistake("divided by the padded length", "rms_norm", ROWS, lambda x, w, *, eps: rms(x, w, eps, divisor=256),
            r"divided by 256"),
    Mistake("weight read as contiguous", "rms_norm", ROWS,
            lambda x, w, *, eps: rms(x, torch.as_strided(w, w.shape, (1,), w.storage_offset()), eps),
            r"weight was read as if it was contiguous", inputs="strided",
            prepare=lambda x, w: (x, torch.stack((w, w + 1.0), 1)[:, 0])),
    Mistake("bfloat16 through float16", "rms_norm", ROWS, lambda x, w, *, eps: rms(x.half(), w, eps).to(x.dtype),
            r"float16", "bfloat16", prepare=lambda x, w: (x * 2.0**-20, w)),
]  # fmt: skip
