"""Counts the flops of the products, convolutions and attentions of a function of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.flop_counter import flop_registry

from suite.numerics.dispatch import DispatchMode


class FlopCounter(DispatchMode):
    """While entered, adds to `flops` those of each operation that PyTorch can count.

    The numbers are those of torch's FlopCounterMode, which imports TorchDynamo for a second.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        count = flop_registry.get(getattr(func, "overloadpacket", func))
        if count is None and hasattr(func, "decompose"):
            with self:  # counts the parts
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
        result = func(*args, **given)
        if count is not None:
            self.flops += count(*args, **given, out_val=result)
        return result
