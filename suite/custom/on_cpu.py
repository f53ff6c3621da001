"""Redirects a file that names a GPU to the CPU, where there is no GPU: `.cuda()`, and "cuda" as the name of a device.

Comparisons stay: `if x.device.type == "cuda"` is false on a CPU.
"""

from __future__ import annotations

import ast
import re
from typing import Any

DEVICE_NAME = re.compile(r"cuda(:\d+)?")


def compiled_for_device(tree: ast.Module, path: str) -> Any:
    """The code of a file, with the CPU in place of each GPU where torch finds none."""
    import torch

    tree = tree if torch.cuda.is_available() else ast.fix_missing_locations(_ToCpu().visit(tree))
    return compile(tree, path, "exec", dont_inherit=True)


class _ToCpu(ast.NodeTransformer):
    """Renames devices. A text that stands alone, such as a docstring, stays."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        operands = [
            each if isinstance(each, ast.Constant | ast.Tuple | ast.List | ast.Set) else self.visit(each)
            for each in (node.left, *node.comparators)
        ]
        return ast.copy_location(ast.Compare(operands[0], node.ops, operands[1:]), node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_device = isinstance(node.value, str) and DEVICE_NAME.fullmatch(node.value)
        return ast.copy_location(ast.Constant("cpu"), node) if is_device else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """`f"cuda:{rank}"`"""
        first = node.values[0] if node.values else None
        is_device = isinstance(first, ast.Constant) and first.value == "cuda:"
        return ast.copy_location(ast.Constant("cpu"), node) if is_device else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        """`x.cuda(...)` becomes `x.cpu()`."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            moved = ast.Attribute(self.visit(node.func.value), "cpu", ast.Load())
            return ast.copy_location(ast.Call(ast.copy_location(moved, node), [], []), node)
        return self.generic_visit(node)
