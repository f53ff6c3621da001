"""The exact results of every operation against the same formulas of mpmath's numbers in NumPy's object arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from judging import CPU

from suite import exact, ops

WORDS = mpmath.mp.clone()
WORDS.prec = 300
Array = np.ndarray[Any, Any]
exp, tanh, sqrt = (np.frompyfunc(each, 1, 1) for each in (WORDS.exp, WORDS.tanh, WORDS.sqrt))

SHAPES = {
    "vector_add": (7,),
    "matrix_add": (3, 4),
    "sigmoid": (7,),
    "sum": (5, 4),
    "softmax": (3, 5),
    "rms_norm": (3, 5),
    "layer_norm": (3, 5),
    "matmul": (3, 4, 5),
    "linear_sigmoid": (3, 4, 5),
    "linear_sigmoid_grad": (3, 4, 5),
    "conv2d": (2, 5, 4, 3, 2, 3, 2, 2, 1),
    "lstm": (3, 2, 3, 2),
    "attention": (2, 2, 1, 3, 4, 5),
    "attention_grad": (2, 2, 1, 3, 4, 5),
    "multi_head_attention": (2, 4, 6, 2),
}


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + exp(-x)))


def softmax(x: Array, hidden: Array | None = None) -> Array:
    e = exp(x - x.max(axis=-1, keepdims=True))
    e = e if hidden is None else np.where(hidden, 0, e)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def normal(x: Array, eps: float) -> Array:
    return np.asarray(x / sqrt((x * x).sum(axis=1, keepdims=True) / x.shape[1] + eps))


def linear_grad(x: Array, w: Array, b: Array, dy: Array, **_: Any) -> tuple[Array, ...]:
    y = sigmoid(x @ w.T + b)
    dz = dy * y * (1 - y)
    return dz @ w, dz.T @ x, dz.sum(axis=0)


def conv2d(x: Array, w: Array, *, stride: int, padding: int, **_: Any) -> Array:
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((size - taps) // stride + 1 for size, taps in zip(x.shape[1:3], w.shape[1:3], strict=True))
    y = np.zeros((len(x), rows, columns, len(w)), dtype=object)
    for p, q in np.ndindex(rows, columns):
        window = x[:, p * stride : p * stride + w.shape[1], q * stride : q * stride + w.shape[2]]
        y[:, p, q] = window.reshape(len(x), -1) @ w.reshape(len(w), -1).T
    return y


def lstm(
    x: Array, w_ih: Array, w_hh: Array, bias: Array, h: Array, c: Array, w_ih_upper: Array | None = None
) -> tuple[Array, ...]:
    if w_ih_upper is not None:
        states = []
        for operands in zip((w_ih, *w_ih_upper), w_hh, bias, h, c, strict=True):
            x, *state = lstm(x, *operands)
            states.append(state)
        return x, *(np.stack(each) for each in zip(*states, strict=True))
    y = []
    for part in x:
        i, f, g, o = np.split(part @ w_ih.T + h @ w_hh.T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        y.append(h)
    return np.stack(y), h, c


def attention_grad(q: Array, k: Array, v: Array, do: Array, *, causal: bool, **_: Any) -> tuple[Array, ...]:
    o, dq, dk, dv = (np.zeros_like(each) for each in (q, q, k, v))
    hidden = ~np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool) if causal else None
    scale = 1 / WORDS.sqrt(q.shape[3])
    for b, h in np.ndindex(*q.shape[:2]):
        at = b, h // (q.shape[1] // k.shape[1])
        p = softmax(q[b, h] @ k[at].T * scale, hidden)
        o[b, h], dp = p @ v[at], do[b, h] @ v[at].T
        ds = p * (dp - (p * dp).sum(axis=1, keepdims=True)) * scale
        dq[b, h], dk[at], dv[at] = ds @ k[at], dk[at] + ds.T @ q[b, h], dv[at] + p.T @ do[b, h]
    return dq, dk, dv, o


def layer(x: Array, w_qkv: Array, w_out: Array, *, heads: int, causal: bool) -> Array:
    b, s, e = x.shape
    q, k, v = (x @ w_qkv.T).reshape(b, s, 3, heads, e // heads).transpose(2, 0, 3, 1, 4)
    o = attention_grad(q, k, v, q, causal=causal)[3]
    return np.asarray(o.transpose(0, 2, 1, 3).reshape(b, s, e) @ w_out.T)


FORMULAS: dict[str, Callable[..., Any]] = {
    "vector_add": lambda a, b: a + b,
    "matrix_add": lambda a, b: a + b,
    "sigmoid": sigmoid,
    "sum": lambda x, axis: x.sum(axis=axis),
    "softmax": softmax,
    "rms_norm": lambda x, w, eps: normal(x, eps) * w,
    "layer_norm": lambda x, w, b, eps: normal(x - x.sum(axis=1, keepdims=True) / x.shape[1], eps) * w + b,
    "matmul": lambda a, b, precision: a @ b,
    "linear_sigmoid": lambda x, w, b, precision: sigmoid(x @ w.T + b),
    "linear_sigmoid_grad": linear_grad,
    "conv2d": conv2d,
    "lstm": lstm,
    "attention": lambda q, k, v, **options: attention_grad(q, k, v, q, **options)[3],
    "attention_grad": lambda *operands, **options: attention_grad(*operands, **options)[:3],
    "multi_head_attention": layer,
}


def words(x: torch.Tensor) -> Array:
    return np.frompyfunc(WORDS.mpf, 1, 1)(x.numpy())


@pytest.mark.parametrize("name", SHAPES)
def test_a_formula_is_exact(name: str) -> None:
    op = ops.get(name)
    ends = {option.name: (option.values[0], option.values[-1]) for option in op.options}
    for options in op.option_combinations("float64", ends):
        case = op.case(SHAPES[name], "float64", **options)
        inputs, arguments = op.make_inputs(case, 0, CPU), op.arguments(case)
        found = exact.results(name, inputs, arguments)
        expected = FORMULAS[name](*map(words, inputs), **arguments)
        for pair, truth in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
            error = np.abs(words(pair.high) + words(pair.low) - truth)
            assert np.asarray(error <= 2.0**-66 * np.max(np.abs(truth))).all(), (case.label, float(np.max(error)))


def test_every_operation_in_float64_has_an_example() -> None:
    names = {name for name in ops.names() if "float64" in ops.get(name).dtypes_beyond}
    assert set(SHAPES) == set(FORMULAS) == names
