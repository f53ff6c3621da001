"""Right kernels in NumPy: ufuncs, einsum, loops over blocks, double accumulation."""

from __future__ import annotations

import numpy as np


def _wide(x):
    return np.asarray(x).astype(np.float64)


def vector_add__ufunc(a, b):
    return np.add(a, b)


def vector_add__double(a, b):
    return (_wide(a) + _wide(b)).astype(a.dtype)


def matrix_add__operator(a, b):
    return a + b


def matrix_add__fused_loop(a, b):
    out = np.empty(a.shape, a.dtype)
    for i in range(a.shape[0]):
        out[i] = a[i] + b[i]
    return out


def sigmoid__tanh(x):
    return (0.5 * (1 + np.tanh(0.5 * _wide(x)))).astype(x.dtype) if x.size and _wide(x).min() > -8 else _stable(x)


def _stable(x):
    e = np.exp(-np.abs(_wide(x)))
    return np.where(_wide(x) >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def sigmoid__by_sign(x):
    return _stable(x)


def sigmoid__logaddexp(x):
    return np.exp(-np.logaddexp(0, -_wide(x))).astype(x.dtype)


def softmax__scipy(x):
    y = _wide(x)
    p = np.exp(y - np.max(y, axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)).astype(x.dtype)


def softmax__logaddexp_reduce(x):
    y = _wide(x)
    return np.exp(y - np.logaddexp.reduce(y, axis=1, keepdims=True)).astype(x.dtype)


def rms_norm__ufuncs(x, weight, *, eps=1e-6):
    y = _wide(x)
    return (y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + eps) * _wide(weight)).astype(x.dtype)


def layer_norm__ufuncs(x, weight, bias, *, eps=1e-5):
    y = _wide(x)
    y = y - y.mean(axis=-1, keepdims=True)
    return (y / np.sqrt(np.square(y).mean(axis=-1, keepdims=True) + eps) * _wide(weight) + _wide(bias)).astype(x.dtype)


def sum__double(x, *, axis=None):
    return np.asarray(np.sum(x, axis=axis, dtype=np.float64), x.dtype)


def sum__add_reduce(x, *, axis=None):
    return np.asarray(np.add.reduce(_wide(x), axis=axis), x.dtype)


def sum__scalar_of_all(x, *, axis=None):
    return x.sum(axis=axis, dtype=np.float64).astype(x.dtype)


def matmul__dot(a, b, *, precision="ieee"):
    return np.dot(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)


def matmul__einsum(a, b, *, precision="ieee"):
    return np.einsum("mk,kn->mn", _wide(a), _wide(b)).astype(a.dtype)


def matmul__inner(a, b, *, precision="ieee"):
    return np.inner(_wide(a), _wide(b).T).astype(a.dtype)


def linear_sigmoid__ufuncs(x, weight, bias, *, precision="ieee"):
    return _stable(_wide(x) @ _wide(weight).T + _wide(bias)).astype(x.dtype)
