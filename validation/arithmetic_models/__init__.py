"""NumPy models of kernels' arithmetic: right ways to compute an operation, and ways with one error of precision.

A model takes the inputs of a case in float64, which is exact, and returns what a kernel with that arithmetic returns.
"""

from validation.arithmetic_models.attention import (
    ATTENTION,
    attention_case,
    attention_ratio,
    needs_keys,
    right_attention,
    wrong_attention,
)
from validation.arithmetic_models.false_alarms import false_alarms, refused
from validation.arithmetic_models.matmul import (
    FLOAT8,
    FLOAT8_KINDS,
    KINDS,
    KS,
    matmul_ratio,
    right_products,
    wrong_products,
)
from validation.arithmetic_models.sigmoid import sigmoid_ratio, sigmoids
from validation.arithmetic_models.sums import separate

__all__ = [
    "ATTENTION",
    "FLOAT8",
    "FLOAT8_KINDS",
    "KINDS",
    "KS",
    "attention_case",
    "attention_ratio",
    "false_alarms",
    "matmul_ratio",
    "needs_keys",
    "refused",
    "right_attention",
    "right_products",
    "separate",
    "sigmoid_ratio",
    "sigmoids",
    "wrong_attention",
    "wrong_products",
]
