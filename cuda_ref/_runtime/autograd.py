"""Makes the attention of this folder a torch operator with a gradient.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/autograd.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


def differentiable(variant: str) -> Callable[..., Tensor]:
    """Gives `attention.<variant>.attention`, or `attention.attention`, the gradient that `attention_grad` computes.

    The first call imports both files. The operators are `<folder>::differentiable_attention_<variant>` and, for
    its gradient, `<folder>::attention_gradients_<variant>`; the attribute `operators` of the function holds them.
    Below another package, the name of the folder begins with that of the package, as in `operator.py`.
    """
    folder = __package__.rpartition(".")[0]
    library = folder.replace(".", "_")
    module, ending = (f".{variant}", f"_{variant}") if variant else ("", "")

    def function(name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(import_module(f"{folder}.{name}{module}"), name)
        return found

    @torch.library.custom_op(f"{library}::differentiable_attention{ending}", mutates_args=())
    def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
        out: Tensor = function("attention")(q, k, v, causal=causal, sm_scale=sm_scale)
        return out

    @torch.library.custom_op(f"{library}::attention_gradients{ending}", mutates_args=())
    def backward(
        q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, sm_scale: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = function("attention_grad")(q, k, v, do, causal=causal, sm_scale=sm_scale)
        return dq, dk, dv

    @forward.register_fake
    def _(q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
        return q.new_empty(q.shape)

    @backward.register_fake
    def _(
        q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, sm_scale: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.causal, ctx.sm_scale = inputs
        ctx.save_for_backward(*tensors)

    def differentiate(ctx: Any, do: Tensor) -> Any:
        return *backward(*ctx.saved_tensors, do, ctx.causal, ctx.sm_scale), None, None

    forward.register_autograd(differentiate, setup_context=save)

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> Tensor:
        """Attention with a gradient. Arguments, result and errors are those of the function of this folder.

        The backward pass repeats the forward pass, so that the graph keeps only q, k and v. The gradient is not
        differentiable.
        """
        out: Tensor = forward(q, k, v, causal, sm_scale)
        return out

    attention.operators = (forward, backward)  # type: ignore[attr-defined]
    return attention
