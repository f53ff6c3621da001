"""The exact results of operations on float64: about 100 significant bits, where float64 has 53.

`double_double.py` is the arithmetic, `products.py` its matrix product, `functions.py` its exponential and others;
`formulas.py` and `attention.py` have the operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from suite.exact.double_double import DoubleDouble


def results(operation: str, inputs: tuple[torch.Tensor, ...], arguments: Mapping[str, Any]) -> list[DoubleDouble]:
    """Return the exact results of an operation, in the order in which a call returns them.

    inputs: float64. arguments: the keyword arguments of the call. Where an operand or a result is NaN or infinite, the
    value is not finite either, but NaN may stand for an infinity: see `in_two_parts` of `suite/problem/truth.py`.
    """
    from suite.exact import attention, formulas

    found = (getattr(formulas, operation, None) or getattr(attention, operation))(*inputs, **arguments)
    return list(found) if isinstance(found, tuple) else [found]


def workspace_bytes(elements_read: int, elements_written: int) -> int:
    """Return the memory for `results`: slices of the operands, the results in two parts with their temporaries, and the
    arrays of a block."""
    from suite.exact.double_double import BLOCK_ELEMENTS

    return 8 * (12 * elements_read + 16 * elements_written + 60 * BLOCK_ELEMENTS)
