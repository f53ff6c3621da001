"""The operators of PyTorch: gradients flow, torch.compile keeps one graph, fake tensors have the right form."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from suite.hardware.device import Device


def leaves(device: str) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shapes = ((1, 2, 5, 16), (1, 1, 9, 16), (1, 1, 9, 16))
    return tuple(torch.randn(shape, device=device, requires_grad=True) for shape in shapes)


def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    from triton_kernels.autograd import attention

    return (attention(q * 2.0, k, v, causal=True, sm_scale=0.5) ** 2).sum()


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(5, 9, dtype=torch.bool, device=q.device).tril(4)
    return (scaled_dot_product_attention(q * 2.0, k, v, mask, scale=0.5, enable_gqa=True) ** 2).sum()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_flow(where: Device, compiled: bool) -> None:
    function = torch.compile(loss, backend="aot_eager", fullgraph=True) if compiled else loss
    given, others = leaves(where.type), leaves(where.type)
    function(*given).backward()
    expected(*others).backward()
    for mine, other in zip(given, others, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_the_operators_keep_their_word(where: Device) -> None:
    from triton_kernels.autograd import _attention, _attention_grad

    q, k, v = leaves(where.type)
    for operator, arguments in (
        (_attention, (q, k, v)),
        (_attention_grad, (q.detach(), k.detach(), v.detach(), q.detach())),
    ):
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(operator, (*arguments, True, None), test_utils=tests)
