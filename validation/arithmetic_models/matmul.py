"""Models of matrix products: right ones, and ones with one error of precision."""

from __future__ import annotations

import numpy as np
import torch

from suite import ops
from suite.checking.judge import judge
from validation.arithmetic_models.float8 import right_float8, wrong_float8
from validation.arithmetic_models.rounding import CPU, Product, rounded, truncated
from validation.arithmetic_models.sums import CORES, SUMS, accumulated, fused, with_rounded_inputs, with_rounded_parts

KS = (1, 2, 16, 256, 4096, 16384)
"""Lengths of the sums."""
KINDS = (("float32", "ieee"), ("float32", "tf32"), ("float16", "ieee"), ("bfloat16", "ieee"))
"""Pairs of dtype and precision."""
FLOAT8 = "float8_e4m3fn"
FLOAT8_KINDS = ((FLOAT8, "promoted"), (FLOAT8, "fast"))


def right_products(dtype: str, precision: str) -> dict[str, Product]:
    """Return right products of `dtype` in `precision`, by name."""
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


def wrong_products(dtype: str, precision: str, k: int) -> dict[str, Product]:
    """Return products with one error of precision that shows at K = `k`, by name."""
    if dtype == FLOAT8:
        return wrong_float8(precision, k)
    if precision == "tf32":
        return {
            "bfloat16 inputs": with_rounded_inputs("bfloat16"),
            "bfloat16 inputs, truncated": with_rounded_inputs("bfloat16", truncated),
        }
    if dtype == "float32":
        found = {
            "tf32 inputs": with_rounded_inputs("tf32"),
            "tf32 inputs, truncated": with_rounded_inputs("tf32", truncated),
            "float16 inputs": with_rounded_inputs("float16"),
            "float16 output": lambda a, b: rounded(a @ b, "float16"),
        }
        if k > 1:
            found |= {"float16 sums": accumulated("float16", max(1, min(32, k // 2)))}
            found |= {"2 parts in float16": with_rounded_parts("float16", 2)}
        return found
    found = {"bfloat16 inputs": with_rounded_inputs("bfloat16")} if dtype == "float16" else {}
    if k > 1:
        step = max(1, min(32, k // 2))
        found |= {f"{dtype} sums": accumulated(dtype, step), f"2 parts in {dtype}": with_rounded_parts(dtype, 2)}
    return found


def matmul_ratio(product: Product, k: int, dtype: str, precision: str, seed: int = 0) -> float:
    """Return the larger error ratio of the two draws of inputs of a check. The output is smaller for large `k`."""
    op = ops.get("matmul")
    shape = (96, 64) if k <= 256 else (48, 32)
    case = op.case((*shape, k), dtype, precision)
    ratios = []
    for draw in dict.fromkeys((case, op.second_case(case))):
        inputs = op.make_inputs(draw, seed, CPU)
        (a, b), scales = (x.double().numpy() for x in inputs[:2]), (x.numpy() for x in inputs[2:])
        dtype = op.output_dtype(case)
        output = torch.from_numpy(np.asarray(product(a, b, *scales), np.float64)).to(getattr(torch, dtype))
        verdict = judge(output, op.truth(inputs, case), shape=shape, dtype=dtype)
        ratios.append(verdict.error_ratio)
    return max(ratios)
