"""`triton/float8` of attention_grad with the roundings of float8, which the interpreter does not make by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from suite import ops
from suite.checking.judge import judge
from suite.problem.outputs import joined
from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels.attention_grad import float8

CPU = torch.device("cpu")


@triton.jit
def unchanged(x: Any) -> Any:
    return x


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The sizes of the largest numbers that were rounded to float8, by torch: the interpreter truncates."""
    from triton.runtime import interpreter

    original, largest = interpreter._convert_float, []

    def convert(bits: Any, given: Any, wanted: Any, mode: Any) -> Any:
        if (given, wanted) != (tl.float32, tl.float8e4nv):
            return original(bits, given, wanted, mode)
        x = torch.from_numpy(np.ascontiguousarray(bits).view(np.float32).copy())
        largest.append(float(x.abs().max()))
        return x.to(torch.float8_e4m3fn).view(torch.uint8).numpy().reshape(bits.shape)

    monkeypatch.setattr(interpreter, "_convert_float", convert)
    monkeypatch.setattr(float8, "dot_operand", unchanged)
    return largest


@pytest.mark.skipif(not INTERPRET, reason="a GPU rounds by itself")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("family", ["normal", "large_logits"])
def test_p_and_ds_fill_the_range_of_float8(rounded: list[float], causal: bool, family: str) -> None:
    op = ops.get("attention_grad")
    case = op.case((1, 2, 1, 150, 200, 64), "float8_e4m3fn", causal=causal, inputs=family)
    inputs = op.make_inputs(case, 1, CPU)
    out = joined(float8.attention_grad(*inputs, causal=causal))
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert 0.02 < verdict.error_ratio < 0.4, verdict.reason
    assert 100.0 < max(rounded) < 260.0, "p reaches 256 in the first causal row, ds never does"
