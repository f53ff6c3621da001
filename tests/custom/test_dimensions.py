"""The dimensions of a problem: which integers they are, and what follows them."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from suite.custom.dimensions import literals, with_sizes

FOUND = {
    "one": ("n = 4", {"n": 4}),
    "several targets": ("a = b = 8", {"a": 8, "b": 8}),
    "annotated": ("depth: int = 3", {"depth": 3}),
    "an expression of numbers": ("M = 1024 * 2\nN = 2**20", {"M": 2048, "N": 2**20}),
    "a tuple of names": ("height, width = 224, 112", {"height": 224, "width": 112}),
    "nested names": ("(a, (b, c)) = (1, (2, 3))", {"a": 1, "b": 2, "c": 3}),
    "a tuple": ("shape = (3, 240)", {"shape_0": 3, "shape_1": 240}),
    "a list": ("layers = [3, 4]", {"layers_0": 3, "layers_1": 4}),
    "the literals of a tuple": ("c = 4\nshape = (c, 7)", {"c": 4, "shape_1": 7}),
    "what follows another": ("a = 8\nb = a\nc = a * 2\nd, e = a, b", {"a": 8}),
    "no sizes": ("f = 0.5\nt = True\naxis = -1\ntext = 'n'\nhuge = 2**1000\nzero = 1 // 0", {}),
    "the last literal": ("n = 4\nn = 6", {"n": 6}),
    "of the module alone": ("def f():\n    n = 4\nclass C:\n    m = 3", {}),
}


@pytest.mark.parametrize(("text", "expected"), FOUND.values(), ids=FOUND.keys())
def test_literals_of_the_module_are_dimensions(text: str, expected: dict[str, int]) -> None:
    assert literals(ast.parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("a = 8\nb = a\nc = a * 2", {"a": 3}, {"a": 3, "b": 3, "c": 6}),
        ("a = b = 8", {"b": 2}, {"a": 8, "b": 2}),
        ("h, w = shape = 4, 5", {"h": 1, "shape_1": 2}, {"h": 1, "w": 5, "shape": (4, 2)}),
        ("c = 4\nshape = (c, 7)\nn = len(shape)", {"shape_1": 9, "c": 5}, {"c": 5, "shape": (5, 9), "n": 2}),
        ("n = 4\nm = n\nn = n + 1", {"n": 1}, {"n": 2, "m": 1}),
    ],
)
def test_sizes_replace_literals_and_later_lines_follow(
    text: str, sizes: dict[str, int], expected: dict[str, object]
) -> None:
    names: dict[str, Any] = {}
    exec(compile(with_sizes(ast.parse(text), sizes), "<file>", "exec"), {}, names)
    assert names == expected
