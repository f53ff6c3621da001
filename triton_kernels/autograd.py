"""The Triton kernels as operators of PyTorch: with gradients, under torch.compile, with fake tensors.

from triton_kernels.autograd import attention
attention(q, k, v, causal=True).sum().backward()
"""

import torch
from jaxtyping import Float
from torch import Tensor

from triton_kernels import attention as forward
from triton_kernels import attention_grad as backward

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


def attention(q: Queries, k: Keys, v: Keys, *, causal: bool = False, sm_scale: float | None = None) -> Queries:
    """`attention.attention` with a gradient: arguments, result and errors are the same.

    The backward pass is `attention_grad.attention_grad`, which repeats the forward pass: of the graph only q, k and v
    are kept. The gradient has no gradient of its own.
    """
    out: Tensor = _attention(q, k, v, causal, sm_scale)
    return out


@torch.library.custom_op("triton_kernels::attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
    return forward.attention(q, k, v, causal=causal, sm_scale=sm_scale)


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("triton_kernels::attention_grad", mutates_args=())
def _attention_grad(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, sm_scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    return backward.attention_grad(q, k, v, do, causal=causal, sm_scale=sm_scale)


@_attention_grad.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, sm_scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.causal, ctx.sm_scale = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, do):  # type: ignore[no-untyped-def]
    return *_attention_grad(*ctx.saved_tensors, do, ctx.causal, ctx.sm_scale), None, None


_attention.register_autograd(_differentiate, setup_context=_save)
