"""multi_head_attention: its truth is that of PyTorch in float64; its bound holds for rounded parts and for no more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from judging import CPU, RIGHT

from suite import ops
from suite.checking.judge import judge
from suite.core.errors import UsageError
from suite.problem.case import Case

OP = ops.get("multi_head_attention")
Tensors = tuple[torch.Tensor, ...]


def layer(inputs: Tensors, case: Case, kind: torch.dtype = torch.float64) -> torch.Tensor:
    """The layer in float64, but q, k, v and attention's result rounded to `kind`."""
    x, w_qkv, w_out = (each.double() for each in inputs)
    b, s, e, h = case.shape
    q, k, v = (x @ w_qkv.T).to(kind).double().view(b, s, 3, h, e // h).permute(2, 0, 3, 1, 4)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=case.option("causal", False))
    return o.transpose(1, 2).reshape(b, s, e).to(kind).double() @ w_out.T


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(2, 9, 128, 2), (1, 70, 64, 4), (1, 1, 64, 1)], ids=str)
def test_the_truth_is_that_of_pytorch(shape: tuple[int, ...], causal: bool) -> None:
    case = OP.case(shape, causal=causal)
    inputs = OP.make_inputs(case, 0, CPU)
    expected = layer(inputs, case)
    for piece in OP.truth(inputs, case):
        torch.testing.assert_close(piece.value, expected[piece.index], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 200, 128, 2), (1, 20, 256, 1)], ids=str)
def test_rounded_parts_are_right(shape: tuple[int, ...], dtype: str) -> None:
    case = OP.case(shape, dtype, causal=True)
    inputs = OP.make_inputs(case, 0, CPU)
    output = layer(inputs, case, getattr(torch, dtype)).to(getattr(torch, dtype))
    found = judge(output, OP.truth(inputs, case), shape=OP.output_shape(case), dtype=dtype)
    assert 0.1 < found.error_ratio < RIGHT


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "bfloat16"), ("float32", "float16"), ("float16", "bfloat16")])
def test_coarser_parts_are_wrong(dtype: str, kind: str) -> None:
    case = OP.case((1, 64, 128, 2), dtype)
    inputs = OP.make_inputs(case, 0, CPU)
    output = layer(inputs, case, getattr(torch, kind)).to(getattr(torch, dtype))
    assert judge(output, OP.truth(inputs, case), shape=OP.output_shape(case), dtype=dtype).error_ratio > 1.0


def test_features_are_divided_among_heads() -> None:
    with pytest.raises(UsageError, match="E=100 must be a multiple of H=3"):
        OP.parse_shapes("B=1,S=2,E=100,H=3")
