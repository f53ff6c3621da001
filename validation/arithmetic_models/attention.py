"""Models of attention of one head: right ones, and ones with one error of precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from suite import ops
from suite.checking.judge import judge
from suite.core.integers import cdiv
from suite.numerics.float8 import FLOAT8
from suite.problem.case import Case
from validation.arithmetic_models.float8 import aligned
from validation.arithmetic_models.rounding import CPU, Array, Sum, rounded
from validation.arithmetic_models.sums import fused, separate, tensor_core


def attend(
    q: Array,
    k: Array,
    v: Array,
    *,
    visible: Array,
    inputs: str | None = None,
    scaled_q: str | None = None,
    scores: str | None = None,
    weights: str | None = None,
    acc: str | None = None,
    sums: str | None = None,
    parts: str | None = None,
    tile: int = 64,
    splits: int = 1,
    normalized: bool = False,
    product: Sum | None = None,
    headroom: int = 0,
    scales: tuple[float, ...] = (1.0, 1.0, 1.0),
) -> Array:
    """Attention by online softmax over tiles of keys, in float32.

    The parameters `inputs` to `parts` are the types to which these intermediate results are rounded, None for float32.
    `tile` is the number of keys in a tile, `splits` the number of parts of the keys that are combined at the end.
    `normalized` computes the softmax in one pass instead and uses the quotients as weights. `product` computes matrix
    products with the sums of a kernel. `headroom`: weights are at most 2^headroom. `scales`: the scales of q, k and v.
    q is (S_q, D), k and v are (S_k, D), `visible` is (S_q, S_k).
    """
    product = product or (lambda a, b: (a @ b).astype(np.float32))
    q, k, v = (rounded(x, inputs) if inputs else x for x in (q, k, v))
    scale = np.float32(math.log2(math.e) / math.sqrt(q.shape[1]) * scales[0] * scales[1])
    if scaled_q:
        s = product(rounded(q * scale, scaled_q), k.T)
    else:
        s = rounded(product(q, k.T), scores).astype(np.float32) * scale if scores else product(q, k.T) * scale
    s = np.where(visible, s, -np.inf).astype(np.float32)

    if normalized:
        p = _exp2(s - _finite(s.max(1, keepdims=True)))
        total = p.sum(1, keepdims=True, dtype=np.float32)
        return product(_to(p / np.where(total == 0, 1, total), weights).astype(np.float64), v)
    found: list[tuple[Array, Array, Array]] = []
    for first in range(0, len(k), cdiv(len(k), splits)):
        last = min(first + cdiv(len(k), splits), len(k))
        m = np.full((len(q), 1), -np.inf, np.float32)
        total, o = np.zeros_like(m), np.zeros((len(q), v.shape[1]), np.float32)
        for at in range(first, last, tile):
            here = s[:, at : min(at + tile, last)]
            new = np.maximum(m, here.max(1, keepdims=True) - headroom)
            alpha, p = _exp2(m - _finite(new)), _exp2(here - _finite(new))
            total = _to(total * alpha + p.sum(1, keepdims=True, dtype=np.float32), sums)
            o = _to(o * alpha + product(_to(p, weights).astype(np.float64), v[at : min(at + tile, last)]), acc)
            m = new
        found.append((m, total, _to(o / np.where(total == 0, 1, total), parts)))
    return _combined(found) * np.float32(scales[2])


def _combined(found: list[tuple[Array, Array, Array]]) -> Array:
    """Combine the outputs of the parts of the keys, weighted by their shares. A part is (maximum, sum, output)."""
    top = _finite(np.maximum.reduce([m for m, _, _ in found]))
    shares = [total * _exp2(m - top) for m, total, _ in found]
    whole = np.add.reduce(shares)
    return np.add.reduce(
        [o * (share / np.where(whole == 0, 1, whole)) for (_, _, o), share in zip(found, shares, strict=True)]
    )


def _to(x: Array, kind: str | None) -> Array:
    return rounded(x, kind).astype(np.float32) if kind else x


def _exp2(x: Array) -> Array:
    return np.exp2(x.astype(np.float32))


def _finite(m: Array) -> Array:
    return np.where(np.isneginf(m), np.float32(0), m)


def right_attention(dtype: str) -> dict[str, dict[str, Any]]:
    """Return parameters of `attend` for right kernels, by name."""
    if dtype == "float32":
        return {
            "online": {},
            "key by key": {"tile": 1, "product": fused},
            "products one by one": {"product": separate},
            "quotients as weights": {"normalized": True},
            "4 parts of keys": {"splits": 4},
        }
    if dtype == FLOAT8:
        core = {"weights": dtype, "product": aligned(16), "headroom": 8}
        return {
            "online": {"weights": dtype},
            "weights up to 2^8": {"weights": dtype, "headroom": 8},
            "bfloat16 weights": {"weights": "bfloat16"},
            "tensor core of 16": core,
            "tensor core of 32, tiles of 128": {**core, "product": aligned(32), "tile": 128},
        }
    core = {"product": tensor_core(8), "weights": dtype}
    return {
        "online": {"weights": dtype},
        "float32 weights": {},
        "tensor core of 8": core,
        "tensor core of 8, tiles of 16": {**core, "tile": 16},
        "quotients as weights": {"normalized": True, "weights": dtype},
        "4 parts of keys": {"splits": 4, "weights": dtype},
    }


def wrong_attention(dtype: str) -> dict[str, dict[str, Any]]:
    """Return parameters of `attend` with one error of precision, by name."""
    if dtype == "float32":
        return {
            "tf32 inputs": {"inputs": "tf32"},
            "tf32 scores": {"scores": "tf32"},
            "float16 weights": {"weights": "float16"},
            "float16 accumulator": {"acc": "float16"},
            "float16 parts": {"splits": 4, "parts": "float16"},
            "float16 denominator": {"sums": "float16"},
        }
    if dtype == FLOAT8:
        return {
            "float8 scores": {"scores": dtype, "weights": dtype},
            "float8 scaled queries": {"scaled_q": dtype, "weights": dtype},
            "scale of v forgotten": {"weights": dtype, "forgotten": 2},
            "scale of k forgotten": {"weights": dtype, "forgotten": 1},
        }
    found: dict[str, dict[str, Any]] = {
        f"{dtype} scores": {"scores": dtype},
        f"{dtype} scaled queries": {"scaled_q": dtype},
        f"{dtype} accumulator": {"acc": dtype},
        f"{dtype} denominator": {"sums": dtype},
    }
    found = {name: {"weights": dtype, **settings} for name, settings in found.items()}
    if dtype == "float16":
        found["bfloat16 inputs"] = {"inputs": "bfloat16", "weights": dtype}
        found["bfloat16 weights"] = {"weights": "bfloat16"}
    return found


def needs_keys(mistake: str) -> int:
    """Return the number of keys from which an error shows: errors of sums over tiles need several tiles."""
    return 512 if "accumulator" in mistake or "denominator" in mistake else 1


def attention_ratio(settings: dict[str, Any], case: Case, seed: int = 0) -> float:
    """Return the error ratio of attention of one head with these parameters of `attend`."""
    op = ops.get("attention")
    inputs = op.make_inputs(case, seed, CPU)
    q, k, v = (x[0, 0].double().numpy() for x in inputs[:3])
    scales = [float(x) for x in inputs[3:]] or 3 * [1.0]
    if "forgotten" in settings:
        settings = dict(settings)
        scales[settings.pop("forgotten")] = 1.0
    visible = np.tri(len(q), len(k), len(k) - len(q) if case.option("causal") else len(k), dtype=bool)
    output = torch.from_numpy(
        np.asarray(attend(q, k, v, visible=visible, scales=tuple(scales), **settings), np.float64)
    )
    dtype = op.output_dtype(case)
    output = output.to(getattr(torch, dtype))[None, None]
    return judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype).error_ratio


def attention_case(shape: tuple[int, int, int], dtype: str, causal: bool, inputs: str = "normal") -> Case:
    return ops.get("attention").case((1, 1, 1, *shape), dtype, causal=causal, inputs=inputs)


ATTENTION = (((16, 16, 64), False), ((50, 50, 128), True), ((64, 512, 64), False), ((32, 4096, 64), True))
"""Queries, keys and features, and whether causal."""
