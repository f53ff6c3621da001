"""rope: its bound refuses arithmetic of fewer bits; halves, pairs and both directions are what their names say."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES
from suite.ops.rope import joined, parts, rotated
from suite.problem.outputs import joined as one_vector

SHAPE = (2, 33, 5, 2, 64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_fewer_bits_are_wrong_and_float32_is_right(dtype: str) -> None:
    op = ops.get("rope")
    case = op.case(SHAPE, dtype)
    q, k, cos, sin = op.make_inputs(case, 0, CPU)

    def ratio(kind: torch.dtype) -> float:
        results = []
        for x in (q, k):
            a, b = parts(x.to(kind), "halves")
            c, s = cos.to(kind)[:, None], sin.to(kind)[:, None]
            results.append(joined(a * c - b * s, b * c + a * s, "halves").to(q.dtype))
        return judge_output(op, case, one_vector(results)).error_ratio

    assert ratio(torch.float32) < 0.7
    fewer = torch.bfloat16 if dtype == "float32" else getattr(torch, dtype)
    assert ratio(fewer) > 1.2


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_the_inverse_undoes_the_rotation(layout: str) -> None:
    x = torch.randn(4, 3, 10, dtype=torch.float64)
    angles = torch.randn(4, 5, dtype=torch.float64)
    cos, sin = angles.cos(), angles.sin()
    there = rotated(x, cos, sin, layout)
    assert torch.allclose(rotated(there, cos, -sin, layout), x)
    assert torch.allclose(there.square().sum(-1), x.square().sum(-1)), "a rotation keeps lengths"
    first, second = parts(there, layout)
    a, b = (x[..., :5], x[..., 5:]) if layout == "halves" else (x[..., ::2], x[..., 1::2])
    assert torch.allclose(torch.complex(first, second), torch.complex(a, b) * torch.exp(1j * angles)[:, None])


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(UsageError, match="D must be even; got D=5"):
        ops.get("rope").parse_shapes("B=1,S=1,H=1,H_kv=1,D=5")
