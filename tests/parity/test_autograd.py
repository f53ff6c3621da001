"""Attention with a gradient: gradients flow, torch.compile keeps one graph, fake tensors have the right form."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from suite.hardware.device import Device

Function = Callable[..., torch.Tensor]
ANYWHERE = ["triton_kernels attention", "cuda_ref attention"]
HOPPER = ["triton_kernels attention_gluon", "cuda_ref attention_wgmma"]


def differentiable(name: str) -> Function:
    folder, function = name.split()
    found: Function = getattr(import_module(f"{folder}.autograd"), function)
    return found


def leaves(device: str, dtype: torch.dtype, D: int) -> tuple[torch.Tensor, ...]:
    source = torch.Generator(device).manual_seed(0)
    shapes = ((1, 2, 5, D), (1, 1, 9, D), (1, 1, 9, D))
    return tuple(torch.randn(shape, generator=source, device=device).to(dtype).requires_grad_() for shape in shapes)


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(5, 9, dtype=torch.bool, device=q.device).tril(4)
    return (scaled_dot_product_attention(q * 2.0, k, v, mask, scale=0.25, enable_gqa=True) ** 2).sum()


def check(attention: Function, given: tuple[torch.Tensor, ...], compiled: bool, tolerance: float) -> None:
    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (attention(q * 2.0, k, v, causal=True, sm_scale=0.25).float() ** 2).sum()

    (torch.compile(loss, backend="aot_eager", fullgraph=True) if compiled else loss)(*given).backward()
    others = tuple(x.detach().double().requires_grad_() for x in given)
    expected(*others).backward()
    for mine, other in zip(given, others, strict=True):
        torch.testing.assert_close(mine.grad, other.grad.to(mine.dtype), rtol=tolerance, atol=tolerance)


both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


@both
@pytest.mark.parametrize("name", ANYWHERE)
def test_gradients_flow(where: Device, name: str, compiled: bool) -> None:
    check(differentiable(name), leaves(where.type, torch.float32, 16), compiled, 1e-4)


@pytest.mark.gpu
@both
@pytest.mark.parametrize("name", HOPPER)
def test_gradients_flow_on_hopper(where: Device, name: str, compiled: bool) -> None:
    if where.capability != (9, 0):
        pytest.skip("needs compute capability 9.0")
    check(differentiable(name), leaves("cuda", torch.bfloat16, 64), compiled, 0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("name", HOPPER)
def test_gradients_flow_in_a_graph_capture(where: Device, name: str) -> None:
    if where.capability != (9, 0):
        pytest.skip("needs compute capability 9.0")
    q, k, v = leaves("cuda", torch.bfloat16, 64)
    attention = differentiable(name)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(attention(q, k, v, causal=True).float().square().sum(), (q, k, v))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # before the capture: compiles, and tells autograd of the stream
        for _ in range(3):
            alone = gradients()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = gradients()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(found, alone, strict=True))


@pytest.mark.parametrize("name", ANYWHERE)
def test_the_operators_keep_their_word(where: Device, name: str) -> None:
    q, k, v = leaves(where.type, torch.float32, 16)
    forward, backward = differentiable(name).operators  # type: ignore[attr-defined]
    for operator, arguments in (
        (forward, (q, k, v)),
        (backward, (q.detach(), k.detach(), v.detach(), q.detach())),
    ):
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(operator, (*arguments, True, None), test_utils=tests)
