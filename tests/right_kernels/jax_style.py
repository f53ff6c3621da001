"""Right kernels in JAX: jnp, lax, vmap, scan, einsum, jax.nn, associative scans."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

HIGHEST = lax.Precision.HIGHEST


@jax.jit
def vector_add__jnp(a, b):
    return jnp.add(a, b)


@jax.jit
def vector_add__lax(a, b):
    return lax.add(a, b)


@jax.jit
def vector_add__tree(a, b):
    return jax.tree.map(lambda x, y: x + y, a, b)


@jax.jit
def matrix_add__vmap(a, b):
    return jax.vmap(jnp.add)(a, b)


@jax.jit
def matrix_add__vmap_of_columns(a, b):
    return jax.vmap(lambda x, y: x + y, in_axes=1, out_axes=1)(a, b)


@jax.jit
def sigmoid__nn(x):
    return jax.nn.sigmoid(x.astype(jnp.float32)).astype(x.dtype)


@jax.jit
def sigmoid__lax_logistic(x):
    return lax.logistic(x.astype(jnp.float32)).astype(x.dtype)


@jax.jit
def sigmoid__where(x):
    y = x.astype(jnp.float32)
    e = jnp.exp(-jnp.abs(y))
    return jnp.where(y >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


@jax.jit
def softmax__nn(x):
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


@jax.jit
def softmax__stop_gradient(x):
    y = x.astype(jnp.float32)
    p = jnp.exp(y - lax.stop_gradient(y.max(-1, keepdims=True)))
    return (p / p.sum(-1, keepdims=True)).astype(x.dtype)


@jax.jit
def softmax__vmap_of_a_row(x):
    def row(y):
        p = jnp.exp(y - y.max())
        return p / p.sum()

    return jax.vmap(row)(x.astype(jnp.float32)).astype(x.dtype)


def rms_norm__jnp(x, weight, *, eps=1e-6):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + eps) * weight.astype(jnp.float32)).astype(
        x.dtype
    )


def rms_norm__vmap(x, weight, *, eps=1e-6):
    def row(y):
        return y / jnp.sqrt(jnp.vdot(y, y, precision=HIGHEST) / y.size + eps) * weight.astype(jnp.float32)

    return jax.vmap(row)(x.astype(jnp.float32)).astype(x.dtype)


def layer_norm__jnp(x, weight, bias, *, eps=1e-5):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    y = y * lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + eps)
    return (y * weight.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def layer_norm__standardize(x, weight, bias, *, eps=1e-5):
    y = x.astype(jnp.float32)
    normal = jax.nn.standardize(y, axis=-1, variance=y.var(-1, keepdims=True), epsilon=eps)
    return (normal * weight.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def sum__jnp(x, *, axis=None):
    return jnp.sum(x, axis=axis, dtype=jnp.float32).astype(x.dtype)


def sum__lax_reduce(x, *, axis=None):
    axes = (0, 1) if axis is None else (axis,)
    return lax.reduce(x.astype(jnp.float32), jnp.float32(0), lax.add, axes).astype(x.dtype)


def sum__fori_loop(x, *, axis=None):
    y = x.astype(jnp.float32).reshape(-1, 1) if axis is None else jnp.moveaxis(x.astype(jnp.float32), axis, 0)
    out = lax.fori_loop(0, y.shape[0], lambda i, total: total + y[i], jnp.zeros(y.shape[1:], jnp.float32))
    return (out.reshape(()) if axis is None else out).astype(x.dtype)


def _product(a, b):
    return jnp.matmul(a, b, precision=HIGHEST, preferred_element_type=jnp.float32)


def matmul__jnp(a, b, *, precision="ieee"):
    return _product(a, b).astype(a.dtype)


def matmul__dot_general(a, b, *, precision="ieee"):
    out = lax.dot_general(a, b, (((1,), (0,)), ((), ())), precision=HIGHEST, preferred_element_type=jnp.float32)
    return out.astype(a.dtype)


def matmul__einsum(a, b, *, precision="ieee"):
    return jnp.einsum("mk,kn->mn", a, b, precision=HIGHEST, preferred_element_type=jnp.float32).astype(a.dtype)


def matmul__vmap_of_dots(a, b, *, precision="ieee"):
    rows = jax.vmap(lambda x: jax.vmap(lambda y: jnp.dot(x, y, precision=HIGHEST), in_axes=1)(b.astype(jnp.float32)))
    return rows(a.astype(jnp.float32)).astype(a.dtype)


def matmul__scan_over_k(a, b, *, precision="ieee"):
    def step(total, pair):
        x, y = pair
        return total + x[:, None] * y[None], None

    zero = jnp.zeros((a.shape[0], b.shape[1]), jnp.float32)
    out, _ = lax.scan(step, zero, (a.T.astype(jnp.float32), b.astype(jnp.float32)))
    return out.astype(a.dtype)


def matmul__bf16_products_in_float32(a, b, *, precision="ieee"):
    return _product(a.astype(jnp.float32), b.astype(jnp.float32)).astype(a.dtype)


def linear_sigmoid__nn(x, weight, bias, *, precision="ieee"):
    return jax.nn.sigmoid(_product(x, weight.T) + bias.astype(jnp.float32)).astype(x.dtype)


def attention__softmax(q, k, v, *, causal=False, sm_scale=None):
    scale = sm_scale or q.shape[-1] ** -0.5
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1).astype(jnp.float32) for x in (k, v))
    s = jnp.einsum("bhmd,bhnd->bhmn", q.astype(jnp.float32), k, precision=HIGHEST) * scale
    if causal:
        seen = jnp.tril(jnp.ones(s.shape[-2:], bool), k.shape[2] - q.shape[2])
        s = jnp.where(seen, s, -jnp.inf)
        p = jnp.where(seen.any(-1)[:, None], jax.nn.softmax(s, -1), 0.0)
    else:
        p = jax.nn.softmax(s, -1)
    return jnp.einsum("bhmn,bhnd->bhmd", p, v, precision=HIGHEST).astype(q.dtype)
