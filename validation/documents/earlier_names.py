"""Renames the rows of older committed tables to today's names (docs/results.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from suite.results.row import Row

RENAMED = {
    "vector_add": {"cuda": "cuda/vectorized"},
    "matrix_add": {"cuda": "cuda/tiles", "triton": "triton/auto"},
    "sigmoid": {"cuda": "cuda/vectorized", "triton": "triton/fast_exponential"},
    "sum": {"cuda": "cuda/vectorized", "triton": "triton/parts"},
    "softmax": {"cuda": "cuda/registers", "cuda/passes": "cuda", "triton": "triton/exp2"},
    "rms_norm": {"cuda": "cuda/registers"},
    "layer_norm": {"cuda": "cuda/registers"},
    "linear_sigmoid": {"cuda/wgmma": "cuda/auto", "triton": "triton/pipelined"},
    "linear_sigmoid_grad": {"cuda/wgmma": "cuda/auto", "triton": "triton/auto"},
    "conv2d": {"triton": "triton/auto"},
    "multi_head_attention": {"cuda": "", "cuda/wgmma": "cuda/auto", "triton": "triton/auto"},
    "attention": {"cuda": "cuda/tiles", "cuda/wgmma": "cuda/auto", "triton": "triton/packed"},
    "attention_grad": {"cuda": "cuda/tiles", "triton": "triton/peeled"},
}
"""Earlier names of lines, and the names of the same kernels today; empty for a line that no longer exists."""
MOST_QUERIES = 16
"""Up to this number of queries, attention in Triton ran today's `triton/parts`."""


def renamed(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a table with today's names. A table that has today's names already is returned unchanged."""
    if not rows:
        return []
    names = RENAMED.get(rows[0].operation, {})
    if {row.implementation for row in rows} & {*filter(None, names.values())} - {*names}:
        return list(rows)
    found = (replace(row, implementation=_today(row, names)) for row in rows)
    return [row for row in found if row.implementation]


def _today(row: Row, names: dict[str, str]) -> str:
    if row.operation == "attention" and row.implementation == "triton":
        sizes = dict(size.split("=") for size in row.case.split(",") if "=" in size)
        if int(sizes["S_q"]) <= MOST_QUERIES:
            return "triton/parts"
        if not row.config:  # only the kernel of `triton/specialized` was not tuned
            return "triton/specialized"
    return names.get(row.implementation, row.implementation)
