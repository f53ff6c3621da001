"""Error ratios of NumPy models of kernels: of right arithmetic, and of arithmetic with one error of precision.

    python validation/arithmetic.py         # the tables of docs/agreement.md: error ratios of both, false alarms

tests/ asserts that the right models are below their bound and the others above it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.numerics.formats import DTYPES  # noqa: E402
from suite.results.render import pipe_table  # noqa: E402
from validation.arithmetic_models import (  # noqa: E402
    ATTENTION,
    FLOAT8,
    FLOAT8_KINDS,
    KINDS,
    KS,
    attention_case,
    attention_ratio,
    false_alarms,
    matmul_ratio,
    needs_keys,
    right_attention,
    right_products,
    sigmoid_ratio,
    sigmoids,
    wrong_attention,
    wrong_products,
)

TableRow = tuple[str, str, dict[str, float], dict[str, float]]
"""The arithmetic, the size, ratios of right models, and ratios of wrong ones."""


def table(rows: Iterator[TableRow]) -> str:
    """Format the rows as Markdown: the largest ratio of right models, the smallest of wrong ones."""
    cells = [
        [what, size, f"{max(right.values()):.2f}", f"{min(wrong.values()):.3g}" if wrong else "", _least(wrong)]
        for what, size, right, wrong in rows
    ]
    heads = ["arithmetic", "size", "right, at most", "wrong, at least", "the least wrong"]
    return pipe_table(heads, cells, right={"right, at most", "wrong, at least"})


def _least(ratios: dict[str, float]) -> str:
    return min(ratios, key=lambda name: ratios[name]) if ratios else ""


def matmul_rows() -> Iterator[TableRow]:
    for dtype, precision in KINDS + FLOAT8_KINDS:
        for k in KS:
            measure = lambda product: matmul_ratio(product, k, dtype, precision)  # noqa: B023, E731
            right = {name: measure(product) for name, product in right_products(dtype, precision).items()}
            wrong = {name: measure(product) for name, product in wrong_products(dtype, precision, k).items()}
            kind = f"float8 {precision}" if dtype == FLOAT8 else precision if precision == "tf32" else dtype
            yield f"matmul {kind}", f"K={k}", right, wrong


def attention_rows() -> Iterator[TableRow]:
    for dtype in (*DTYPES, FLOAT8):
        for shape, causal in ATTENTION:
            draws = ("normal",) if dtype == FLOAT8 else ("normal", "shifted")
            both = [attention_case(shape, dtype, causal, inputs) for inputs in draws]
            worst = lambda settings: max(attention_ratio(settings, case) for case in both)  # noqa: B023, E731
            right = {name: worst(settings) for name, settings in right_attention(dtype).items()}
            mistakes = {n: s for n, s in wrong_attention(dtype).items() if needs_keys(n) <= shape[1]}
            size = "S_q={}, S_k={}, D={}".format(*shape) + (", causal" if causal else "")
            yield (
                f"attention {'float8' if dtype == FLOAT8 else dtype}",
                size,
                right,
                {name: worst(settings) for name, settings in mistakes.items()},
            )


def sigmoid_rows() -> Iterator[TableRow]:
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
