"""Kernels' arithmetic without kernels: right ways to compute an operation, and mistakes of one unit of precision.

    python tests/arithmetic.py              # the tables of docs/agreement.md: error ratios of both, false alarms

Each takes the case's inputs in float64, exact, and returns what such a kernel would. test_check.py asserts the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import ops  # noqa: E402
from suite.checking.verdict import judge  # noqa: E402
from suite.numerics.bounds import MARGIN, deviations  # noqa: E402
from suite.numerics.formats import DTYPES, SIGNIFICANT_BITS  # noqa: E402
from suite.ops.matmul import FLOAT8_SUM_BITS  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.results.render import pipe_table  # noqa: E402

CPU = torch.device("cpu")
Array = np.ndarray
Sum = Callable[[Array, Array], Array]
Product = Callable[..., Array]
Map = Callable[[Array], Array]

KS = (1, 2, 16, 256, 4096, 16384)
KINDS = (("float32", "ieee"), ("float32", "tf32"), ("float16", "ieee"), ("bfloat16", "ieee"))
FLOAT8 = "float8_e4m3fn"
FLOAT8_KINDS = ((FLOAT8, "promoted"), (FLOAT8, "fast"))


def rounded(x: Array, kind: str) -> Array:
    """To the nearest number of a type, or of 11 significant bits for tf32."""
    if kind == "tf32":
        bits = x.astype(np.float32).view(np.int32)
        return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(np.float32).astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(x)).to(getattr(torch, kind)).double().numpy()


def truncated(x: Array, kind: str) -> Array:
    """Towards zero, to as many significant bits as a type has."""
    bits = np.asarray(x, np.float64).view(np.int64)
    return (bits & ~((1 << (53 - SIGNIFICANT_BITS[kind])) - 1)).view(np.float64)


# Matrix products: right in float32, of inputs as they are


def fused(a: Array, b: Array) -> Array:
    """One multiply-add after the other, each rounded once."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        c = (c + np.multiply.outer(column, row)).astype(np.float32)
    return c


def separate(a: Array, b: Array) -> Array:
    """Products rounded, then added one after the other."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        c += np.multiply.outer(column, row).astype(np.float32)
    return c


def blocked(a: Array, b: Array) -> Array:
    """Sums of 32 terms, added one after the other."""
    return in_parts(a, b, 32, fused)


def pairwise(a: Array, b: Array) -> Array:
    """Halves, and halves of halves."""
    if a.shape[1] <= 4:
        return separate(a, b)
    half = a.shape[1] // 2
    return pairwise(a[:, :half], b[:half]) + pairwise(a[:, half:], b[half:])


def split(a: Array, b: Array) -> Array:
    """Four parts of K by four programs."""
    return in_parts(a, b, max(1, -(-a.shape[1] // 4)), fused)


def in_parts(a: Array, b: Array, step: int, part: Sum) -> Array:
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], step):
        c += part(a[:, k : k + step], b[k : k + step])
    return c


def tensor_core(depth: int) -> Sum:
    """`depth` products and the accumulator added exactly, and truncated to float32."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], depth):
            c = truncated(c + a[:, k : k + depth] @ b[k : k + depth], "float32")
        return c.astype(np.float32)

    return add


SUMS: dict[str, Sum] = {
    "one by one, fused": fused,
    "one by one": separate,
    "blocks of 32": blocked,
    "pairwise": pairwise,
    "4 parts": split,
}
CORES: dict[str, Sum] = {f"tensor core of {depth}": tensor_core(depth) for depth in (4, 8, 16)}


def right_products(dtype: str, precision: str) -> dict[str, Product]:
    if dtype == FLOAT8:
        return right_float8(precision)
    if precision == "tf32":
        found = {}
        for name, to_tf32 in (("rounded", rounded), ("truncated", truncated)):
            for core, add in (("fused", fused), *CORES.items()):
                found[f"{name}, {core}"] = lambda a, b, r=to_tf32, s=add: s(r(a, "tf32"), r(b, "tf32"))
        found["one rounded, one truncated"] = lambda a, b: fused(rounded(a, "tf32"), truncated(b, "tf32"))
        return found
    return SUMS if dtype == "float32" else {**SUMS, **{k: v for k, v in CORES.items() if k != "tensor core of 4"}}


# Matrix products of float8: of two matrices and two scales


def aligned(depth: int) -> Sum:
    """`depth` products and the accumulator truncated to 13 places after the first bit of the largest; the sum too."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], depth):
            products = a[:, None, k : k + depth] * b.T[None, :, k : k + depth]
            last = _last_place(np.maximum(np.abs(products).max(2), np.abs(c)))
            c = np.trunc(c / last) * last + np.trunc(products / last[..., None]).sum(2) * last
            c = np.trunc(c / _last_place(c)) * _last_place(c)
        return c

    return add


def _last_place(x: Array) -> Array:
    return np.ldexp(1.0, np.frexp(x)[1] - FLOAT8_SUM_BITS)


def promoted(depth: int, terms: int) -> Sum:
    """Sums of so many terms by a tensor core, added in float32."""
    return lambda a, b: in_parts(a, b, terms, lambda *part: aligned(depth)(*part).astype(np.float32))


def scaled(add: Sum) -> Product:
    """The sum, multiplied by the product of the scales in float32."""
    return lambda a, b, scale_a, scale_b: add(a, b).astype(np.float32) * (scale_a * scale_b)


def right_float8(precision: str) -> dict[str, Product]:
    found = {name: scaled(add) for name, add in SUMS.items()}
    found["one scale after the other"] = lambda a, b, x, y: fused(a, b) * x * y
    for depth, terms in ((16, 128), (32, 128), (32, 64)):
        found[f"tensor core of {depth}, promoted every {terms}"] = scaled(promoted(depth, terms))
    if precision == "fast":
        found |= {f"tensor core of {depth}": scaled(aligned(depth)) for depth in (16, 32)}
    return found


def wrong_float8(precision: str, k: int) -> dict[str, Product]:
    def e5m2(x: Array) -> Array:
        return torch.from_numpy(x).to(torch.float8_e4m3fn).view(torch.float8_e5m2).double().numpy()

    found: dict[str, Product] = {
        "scale forgotten": lambda a, b, x, y: a @ b * x,
        "one scale twice": lambda a, b, x, y: a @ b * x * x,
        "read as float8_e5m2": lambda a, b, x, y: np.nan_to_num(e5m2(a)) @ np.nan_to_num(e5m2(b)) * x * y,
        "rounded to float16": lambda a, b, x, y: rounded(a @ b * x * y, "float16"),
    }
    if 1 < k <= 128 or (k > 1 and precision == "fast"):  # more terms of one sign make sums of much the same size
        found["rounded before it is scaled"] = lambda a, b, x, y: rounded(a @ b, "bfloat16") * x * y
    if k > 1:
        found["last term missing"] = lambda a, b, x, y: a[:, :-1] @ b[:-1] * x * y
        found["bfloat16 sums"] = lambda a, b, x, y: accumulated("bfloat16", max(1, min(32, k // 2)))(a, b) * x * y
    if precision == "promoted" and k >= FAST_SHOWS:
        found |= {f"fast, tensor core of {depth}": scaled(aligned(depth)) for depth in (16, 32)}
    return found


FAST_SHOWS = 1024
"""Terms from which on sums that are not promoted show. Those of fewer terms are exact where those of 128 have to be."""


# Matrix products: one unit of precision less


def of_inputs(kind: str, to: Callable[[Array, str], Array] = rounded) -> Sum:
    return lambda a, b: to(a, kind) @ to(b, kind)


def accumulated(kind: str, step: int) -> Sum:
    """The sum rounded to 16 bits after every `step` terms."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], step):
            c = rounded(c + a[:, k : k + step] @ b[k : k + step], kind)
        return c

    return add


def parts_of(kind: str, parts: int) -> Sum:
    """Parts of K stored in 16 bits, then added."""

    def add(a: Array, b: Array) -> Array:
        step = -(-a.shape[1] // parts)
        return sum(rounded(a[:, k : k + step] @ b[k : k + step], kind) for k in range(0, a.shape[1], step))

    return add


def wrong_products(dtype: str, precision: str, k: int) -> dict[str, Product]:
    if dtype == FLOAT8:
        return wrong_float8(precision, k)
    if precision == "tf32":
        return {
            "bfloat16 inputs": of_inputs("bfloat16"),
            "bfloat16 inputs, truncated": of_inputs("bfloat16", truncated),
        }
    if dtype == "float32":
        found = {
            "tf32 inputs": of_inputs("tf32"),
            "tf32 inputs, truncated": of_inputs("tf32", truncated),
            "float16 inputs": of_inputs("float16"),
            "float16 output": lambda a, b: rounded(a @ b, "float16"),
        }
        if k > 1:
            found |= {"float16 sums": accumulated("float16", max(1, min(32, k // 2)))}
            found |= {"2 parts in float16": parts_of("float16", 2)}
        return found
    found = {"bfloat16 inputs": of_inputs("bfloat16")} if dtype == "float16" else {}
    if k > 1:
        step = max(1, min(32, k // 2))
        found |= {f"{dtype} sums": accumulated(dtype, step), f"2 parts in {dtype}": parts_of(dtype, 2)}
    return found


def matmul_ratio(product: Product, k: int, dtype: str, precision: str, seed: int = 0) -> float:
    """Error ratio of a product, the larger one of both draws of a check, of few outputs where each takes long."""
    op = ops.get("matmul")
    shape = (96, 64) if k <= 256 else (48, 32)
    case = op.case((*shape, k), dtype, precision)
    ratios = []
    for draw in dict.fromkeys((case, op.second(case))):
        inputs = op.make_inputs(draw, seed, CPU)
        (a, b), scales = (x.double().numpy() for x in inputs[:2]), (x.numpy() for x in inputs[2:])
        output = torch.from_numpy(np.asarray(product(a, b, *scales), np.float64)).to(
            getattr(torch, op.output_dtype(case))
        )
        verdict = judge(output, op.truth(inputs, case), shape=shape, dtype=op.output_dtype(case))
        ratios.append(verdict.error_ratio)
    return max(ratios)


# Attention of one head: right, and one unit of precision less


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
) -> Array:
    """Online softmax over tiles of keys in float32. Named steps are rounded to the type that is given for them.

    normalized: not online, but exponentials, their sum, and quotients as weights. product: how products are summed.
    """
    product = product or (lambda a, b: (a @ b).astype(np.float32))
    q, k, v = (rounded(x, inputs) if inputs else x for x in (q, k, v))
    scale = np.float32(math.log2(math.e) / math.sqrt(q.shape[1]))
    if scaled_q:
        s = product(rounded(q * scale, scaled_q), k.T)
    else:
        s = rounded(product(q, k.T), scores).astype(np.float32) * scale if scores else product(q, k.T) * scale
    s = np.where(visible, s, -np.inf).astype(np.float32)

    def keep(x: Array, kind: str | None) -> Array:
        return rounded(x, kind).astype(np.float32) if kind else x

    def exp2(x: Array) -> Array:
        return np.exp2(x.astype(np.float32))

    if normalized:
        p = exp2(s - _finite(s.max(1, keepdims=True)))
        total = p.sum(1, keepdims=True, dtype=np.float32)
        return product(keep(p / np.where(total == 0, 1, total), weights).astype(np.float64), v)
    found = []
    for first in range(0, len(k), -(-len(k) // splits)):
        last = min(first + -(-len(k) // splits), len(k))
        m = np.full((len(q), 1), -np.inf, np.float32)
        total, o = np.zeros_like(m), np.zeros((len(q), v.shape[1]), np.float32)
        for at in range(first, last, tile):
            here = s[:, at : min(at + tile, last)]
            new = np.maximum(m, here.max(1, keepdims=True))
            alpha, p = exp2(m - _finite(new)), exp2(here - _finite(new))
            total = keep(total * alpha + p.sum(1, keepdims=True, dtype=np.float32), sums)
            o = keep(o * alpha + product(keep(p, weights).astype(np.float64), v[at : min(at + tile, last)]), acc)
            m = new
        found.append((m, total, keep(o / np.where(total == 0, 1, total), parts)))
    top = _finite(np.maximum.reduce([m for m, _, _ in found]))
    shares = [total * exp2(m - top) for m, total, _ in found]
    whole = np.add.reduce(shares)
    return np.add.reduce(
        [o * (share / np.where(whole == 0, 1, whole)) for (_, _, o), share in zip(found, shares, strict=True)]
    )


def _finite(m: Array) -> Array:
    return np.where(np.isneginf(m), np.float32(0), m)


def right_attention(dtype: str) -> dict[str, dict[str, Any]]:
    """Settings of `attend` that a right kernel may have."""
    if dtype == "float32":
        return {
            "online": {},
            "key by key": {"tile": 1, "product": fused},
            "products one by one": {"product": separate},
            "quotients as weights": {"normalized": True},
            "4 parts of keys": {"splits": 4},
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
    """Settings with one mistake."""
    if dtype == "float32":
        return {
            "tf32 inputs": {"inputs": "tf32"},
            "tf32 scores": {"scores": "tf32"},
            "float16 weights": {"weights": "float16"},
            "float16 accumulator": {"acc": "float16"},
            "float16 parts": {"splits": 4, "parts": "float16"},
            "float16 denominator": {"sums": "float16"},
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
    """How many keys there must be for a mistake to show: a sum over tiles has none with one tile, little with two."""
    return 512 if "accumulator" in mistake or "denominator" in mistake else 1


def attention_ratio(settings: dict[str, Any], case: Case, seed: int = 0) -> float:
    """Error ratio of attention with these settings of `attend`. One head."""
    op = ops.get("attention")
    inputs = op.make_inputs(case, seed, CPU)
    q, k, v = (x[0, 0].double().numpy() for x in inputs)
    visible = np.tri(len(q), len(k), len(k) - len(q) if case.option("causal") else len(k), dtype=bool)
    output = torch.from_numpy(np.asarray(attend(q, k, v, visible=visible, **settings), np.float64))
    output = output.to(inputs[0].dtype)[None, None]
    return judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.dtype).error_ratio


def attention_case(shape: tuple[int, int, int], dtype: str, causal: bool, inputs: str = "normal") -> Case:
    return ops.get("attention").case((1, 1, 1, *shape), dtype, causal=causal, inputs=inputs)


ATTENTION = (((16, 16, 64), False), ((50, 50, 128), True), ((64, 512, 64), False), ((32, 4096, 64), True))
"""Queries, keys and features, and whether causal."""


# Sigmoid


def sigmoids(dtype: str) -> tuple[dict[str, Map], dict[str, Map]]:
    """Right ones, and wrong ones."""

    def plain(x: Array) -> Array:
        x = x.astype(np.float32)
        return 1 / (1 + np.exp(-x))

    def through(kind: str) -> Map:
        return lambda x: 1 / rounded(1 + rounded(np.exp(-x), kind), kind)

    def by_tanh(x: Array) -> Array:
        return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x.astype(np.float32))

    right = {"1 / (1 + exp(-x))": plain}
    if dtype != "float32":
        return right, {f"{dtype} exponential": through(dtype)}
    return right, {
        "float16 exponential": through("float16"),
        "float16 result": lambda x: rounded(plain(x), "float16"),
        "by tanh, whose error stays where the result is small": by_tanh,
    }


def sigmoid_ratio(function: Map, dtype: str, seed: int = 0, count: int = 20_000) -> float:
    op = ops.get("sigmoid")
    case = op.case((count,), dtype)
    (x,) = op.make_inputs(case, seed, CPU)
    output = torch.from_numpy(np.asarray(function(x.double().numpy()), np.float64)).to(x.dtype)
    return judge(output, op.truth((x,), case), shape=(count,), dtype=dtype).error_ratio


# Probabilities


def exceeded(deviation: float, total: float) -> float:
    """Bound for the probability that roundings of the partial sums of many terms add up to `deviation` or more.

    In units of u sqrt(n / 3) spread, as is `total` in units of spread. By Markov's inequality from the moments of the
    integral of the square of a Brownian motion W that ends at W(1) = total (R. H. Cameron and W. T. Martin, 1945):
    E exp(x^2 / 2 integral W^2) = sqrt(x / sin x) exp(total^2 / 2 (1 - x cot x)) for 0 < x < pi.
    """
    x = np.linspace(0.01, 3.14, 4000)
    exponent = -x * deviation + np.log(x / np.sin(x)) / 2 + total**2 / 2 * (1 - x / np.tan(x))
    return float(2 * np.exp(exponent.min()))


def refused(count: int, total: float, rounding: float = 1.0) -> float:
    """Bound for the probability that one of `count` right sums, added one by one in float32, has a ratio above 1.

    rounding: the variance of a rounding of s, in units of u^2 s^2 / 3. That is its largest value; where significands
    are spread as logarithms are, the mean of (2^exponent / s)^2 is 3 / (8 log 2), or 0.54.
    """
    deviation = MARGIN * deviations(count) * math.sqrt(1 + total**2 / 3)
    return count * exceeded(deviation / math.sqrt(rounding), total)


def false_alarms() -> str:
    totals = np.linspace(0, 10, 101)
    body = []
    for count in (1, 10**4, 2**20, 2**24, 2**31):
        allowed = deviations(count)
        normal = 2 * count * math.exp(-((MARGIN * allowed) ** 2) / 2)
        worst, mean = (max(refused(count, t, kind) for t in totals) for kind in (1.0, 3 / (8 * math.log(2))))
        body.append([f"{count}", f"{allowed:.1f}", f"{normal:.0e}", f"{worst:.0e}", f"{mean:.0e}"])
    heads = ["outputs", "deviations", "refused: normal tail", "one by one, worst", "one by one, mean"]
    return pipe_table(heads, body, right=set(heads))


# Tables


def table(rows: Iterator[tuple[str, str, dict[str, float], dict[str, float]]]) -> str:
    """(what, size, right ratios, wrong ratios) as Markdown: the largest of the right, the least of the wrong."""
    cells = [
        [what, size, f"{max(right.values()):.2f}", f"{min(wrong.values()):.3g}" if wrong else "", _least(wrong)]
        for what, size, right, wrong in rows
    ]
    heads = ["arithmetic", "size", "right, at most", "wrong, at least", "the least wrong"]
    return pipe_table(heads, cells, right={"right, at most", "wrong, at least"})


def _least(ratios: dict[str, float]) -> str:
    return min(ratios, key=lambda name: ratios[name]) if ratios else ""


def matmul_rows() -> Iterator[tuple[str, str, dict[str, float], dict[str, float]]]:
    for dtype, precision in KINDS + FLOAT8_KINDS:
        for k in KS:
            measure = lambda product: matmul_ratio(product, k, dtype, precision)  # noqa: B023, E731
            right = {name: measure(product) for name, product in right_products(dtype, precision).items()}
            wrong = {name: measure(product) for name, product in wrong_products(dtype, precision, k).items()}
            kind = f"float8 {precision}" if dtype == FLOAT8 else precision if precision == "tf32" else dtype
            yield f"matmul {kind}", f"K={k}", right, wrong


def attention_rows() -> Iterator[tuple[str, str, dict[str, float], dict[str, float]]]:
    for dtype in DTYPES:
        for shape, causal in ATTENTION:
            both = [attention_case(shape, dtype, causal, inputs) for inputs in ("normal", "shifted")]
            worst = lambda settings: max(attention_ratio(settings, case) for case in both)  # noqa: B023, E731
            right = {name: worst(settings) for name, settings in right_attention(dtype).items()}
            mistakes = {n: s for n, s in wrong_attention(dtype).items() if needs_keys(n) <= shape[1]}
            size = "S_q={}, S_k={}, D={}".format(*shape) + (", causal" if causal else "")
            yield f"attention {dtype}", size, right, {name: worst(settings) for name, settings in mistakes.items()}


def sigmoid_rows() -> Iterator[tuple[str, str, dict[str, float], dict[str, float]]]:
    for dtype in DTYPES:
        right, wrong = sigmoids(dtype)
        ratios = [{name: sigmoid_ratio(f, dtype) for name, f in kind.items()} for kind in (right, wrong)]
        yield f"sigmoid {dtype}", "N=20000", *ratios


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows = (row for rows in (sigmoid_rows(), matmul_rows(), attention_rows()) for row in rows)
    print(table(rows), false_alarms(), sep="\n\n")


if __name__ == "__main__":
    main()
