"""attention_split: six products of bfloat16 parts are as accurate as float32, with tensor cores that truncate sums."""

from __future__ import annotations

import pytest
import torch
from tensor_cores import tensor_core

from suite.numerics.attention import attention_limit

ORDER = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0))
"""The order of the lower products, as in add_blocks; the leading product comes last."""


def parts(x: torch.Tensor) -> list[torch.Tensor]:
    """x, float32, as three numbers of bfloat16, in float64."""
    found, rest = [], x.double()
    for _ in range(3):
        found.append(rest.bfloat16().double())
        rest = rest - found[-1]
    return found


def product(a: torch.Tensor, b: torch.Tensor, *, apart: bool) -> torch.Tensor:
    """a b^T; `apart`: the leading product is a sum of its own, added in float32."""
    x, y = parts(a), parts(b)
    lower = torch.zeros(len(a), len(b), dtype=torch.float64)
    for i, j in ORDER:
        lower = tensor_core(x[i], y[j], lower)
    if apart:
        return tensor_core(x[0], y[0], torch.zeros_like(lower)).float() + lower.float()
    return tensor_core(x[0], y[0], lower).float()


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, block: int) -> torch.Tensor:
    """The arithmetic of the kernel for one head, float32."""
    acc, l_i = torch.zeros(len(q), v.shape[1]), torch.zeros(len(q), 1)
    m_i = torch.full((len(q), 1), torch.finfo(torch.float32).min)
    for start in range(0, len(k), block):
        qk = product(q, k[start : start + block], apart=True) * scale
        m_new = torch.maximum(m_i, qk.amax(1, keepdim=True))
        p, alpha = torch.exp(qk - m_new), torch.exp(m_i - m_new)
        l_i = l_i * alpha + p.sum(1, keepdim=True)
        acc = acc * alpha + product(p, v[start : start + block].T, apart=False)
        m_i = m_new
    return acc / l_i


@pytest.mark.parametrize(("D", "block"), [(64, 32), (128, 32), (256, 16)])
@pytest.mark.parametrize("kind", ["normal", "large scores", "positive"])
def test_six_products_meet_the_float32_bound(D: int, block: int, kind: str) -> None:
    source = torch.Generator().manual_seed(D)
    q, k, v = (torch.randn(S, D, generator=source) for S in (16, 512, 512))
    if kind == "large scores":
        q, k = q * 8, k * 8
    elif kind == "positive":
        q, v = q + 8, v + 1.5
    exact = [x.double() for x in (q, k, v)]
    scores = exact[0] @ exact[1].T * D**-0.5
    p = torch.softmax(scores, 1)
    value = p @ exact[2]
    sizes = (exact[0] * D**-0.5).square() @ exact[1].square().T
    limit = attention_limit(
        value, p, scores, sizes, exact[2], head_dim=D, terms=512, count=value.numel(), dtype="float32"
    )

    assert ((attend(q, k, v, D**-0.5, block).double() - value).abs() / limit).max() < 0.7
