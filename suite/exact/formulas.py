"""Operations on float64 operands, with pairs as results; each has the signature of its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from suite.exact import functions
from suite.exact.double_double import BLOCK_ELEMENTS, DoubleDouble, concatenated, exactly, two_sum
from suite.exact.products import product


def in_rows(function: Callable[..., DoubleDouble], *operands: Tensor) -> DoubleDouble:
    """Return a function of operands with one first dimension, in blocks of BLOCK_ELEMENTS."""
    parts = [function(*(each[rows] for each in operands)) for rows in row_blocks(operands[0])]
    return concatenated(parts) if parts else exactly(operands[0])


def row_blocks(x: Tensor) -> Iterator[slice]:
    together = max(1, BLOCK_ELEMENTS // max(1, x[:1].numel()))
    return (slice(start, start + together) for start in range(0, len(x), together))


def vector_add(a: Tensor, b: Tensor) -> DoubleDouble:
    return in_rows(lambda left, right: DoubleDouble(*two_sum(left, right)), a, b)


matrix_add = vector_add


def sigmoid(x: Tensor) -> DoubleDouble:
    return in_rows(lambda part: functions.sigmoid(exactly(part)), x)


def sum(x: Tensor, *, axis: int | None) -> DoubleDouble:
    """The sum along rows, along columns or of all elements, one block of rows at a time."""
    if axis == 1:
        return in_rows(lambda part: exactly(part).sum(1), x) if len(x) else exactly(x.sum(1))
    parts = [exactly(x[rows]).sum(0, keepdim=True) for rows in row_blocks(x)]
    found: DoubleDouble = (concatenated(parts) if parts else exactly(x)).sum(0)
    return found.sum(0) if axis is None else found


def softmax(x: Tensor) -> DoubleDouble:
    return in_rows(lambda part: functions.softmax(exactly(part)), x)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> DoubleDouble:
    return in_rows(lambda part: _scaled_rows(exactly(part), eps) * weight, x)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> DoubleDouble:
    def rows(part: Tensor) -> DoubleDouble:
        found = exactly(part)
        normal: DoubleDouble = _scaled_rows(found - _mean(found), eps) * weight + bias
        return normal

    return in_rows(rows, x)


def _scaled_rows(x: DoubleDouble, eps: float) -> DoubleDouble:
    root = (_mean(x * x) + eps).sqrt()
    return x * (exactly(torch.ones_like(root.high)) / root)  # a quotient of subnormal numbers loses digits


def _mean(x: DoubleDouble) -> DoubleDouble:
    return x.sum(1, keepdim=True) / float(x.high.shape[1])


def matmul(a: Tensor, b: Tensor, *, precision: str) -> DoubleDouble:
    return product(a, b)


def linear_sigmoid(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str) -> DoubleDouble:
    return in_rows(lambda part: functions.sigmoid(product(part, weight.T) + bias), x)


def linear_sigmoid_grad(
    x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str
) -> tuple[DoubleDouble, DoubleDouble, DoubleDouble]:
    y = functions.sigmoid(product(x, weight.T) + bias)
    dz = y * (1.0 - y) * dy
    return product(dz, weight), product(dz.mT, x), dz.sum(0)


def conv2d(x: Tensor, weight: Tensor, *, stride: int, padding: int, precision: str) -> DoubleDouble:
    """The product of the windows of some images with the weights."""
    outputs, taps_y, taps_x, _ = weight.shape
    factors = weight.permute(3, 1, 2, 0).reshape(math.prod(weight.shape[1:]), outputs)

    def images(part: Tensor) -> DoubleDouble:
        padded = torch.nn.functional.pad(part, (0, 0, padding, padding, padding, padding))
        windows = padded.unfold(1, taps_y, stride).unfold(2, taps_x, stride)  # (N, P, Q, C, R, S)
        found = product(windows.reshape(math.prod(windows.shape[:3]), len(factors)), factors)
        return found.view(*windows.shape[:3], outputs)

    return in_rows(images, x) if len(x) else images(x)


def lstm(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor | None = None
) -> tuple[DoubleDouble, DoubleDouble, DoubleDouble]:
    if w_ih_upper is None:
        return _lstm_layer(exactly(x), w_ih, w_hh, bias, h0, c0)
    y, states = exactly(x), []
    for operands in zip((w_ih, *w_ih_upper), w_hh, bias, h0, c0, strict=True):
        y, *state = _lstm_layer(y, *operands)
        states.append([each.view(1, *h0.shape[1:]) for each in state])
    h, c = (concatenated(list(each)) for each in zip(*states, strict=True))
    return y, h, c


def _lstm_layer(
    x: DoubleDouble, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
) -> tuple[DoubleDouble, DoubleDouble, DoubleDouble]:
    h, c, steps, size = exactly(h0), exactly(c0), [], h0.shape[1]
    for t in range(len(x.high)):
        z = product(x[t], w_ih.T) + product(h, w_hh.T) + bias
        i, f, g, o = (z[:, gate * size : gate * size + size] for gate in range(4))
        c = functions.sigmoid(f) * c + functions.sigmoid(i) * functions.tanh(g)
        h = functions.sigmoid(o) * functions.tanh(c)
        steps.append(h.view(1, *h0.shape))
    y = concatenated(steps) if steps else exactly(h0.new_zeros(0, *h0.shape))
    return y, h, c
