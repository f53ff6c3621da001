"""The gradients of attention for Hopper on a CPU: the kernel's own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.attention_grad.wgmma import run
from suite import ops
from suite.checking.judge import judge

# B, H, H_kv, S_q, S_k, D, and parts of a group; each more than a tile of queries and of keys, and no multiple
CASES = [
    pytest.param((2, 4, 2, 150, 290, 128), "bfloat16", True, "normal", 1, id="causal", marks=pytest.mark.thorough),
    pytest.param((1, 1, 1, 500, 400, 128), "bfloat16", False, "normal", 1, id="stages are used again"),
    pytest.param((1, 2, 1, 700, 300, 64), "bfloat16", True, "normal", 1, id="queries without keys"),
    pytest.param((1, 4, 2, 20, 70, 64), "bfloat16", True, "minus_infinity_first", 1, id="infinite keys"),
    pytest.param((2, 8, 2, 90, 150, 64), "bfloat16", True, "normal", 2, id="two heads a part"),
]


WINDOWS = [
    pytest.param((1, 2, 1, 300, 420, 64), 200, 1, id="unmasked steps between", marks=pytest.mark.thorough),
    pytest.param((1, 1, 1, 90, 400, 128), 20, 1, id="keys that no query sees"),
    pytest.param((1, 2, 1, 210, 150, 128), 70, 2, id="queries without keys, two parts"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "window", "parts"), WINDOWS)
def test_windows(emulated: None, nan_outputs: None, size: tuple[int, ...], window: int, parts: int) -> None:
    op = ops.get("attention_grad")
    case = op.case(size, "bfloat16", window=window)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = torch.cat([each.flatten() for each in run(parts, *inputs, True, None, window)])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dtype", "causal", "family", "parts"), CASES)
def test_gradients_agree(
    emulated: None, nan_outputs: None, size: tuple[int, ...], dtype: str, causal: bool, family: str, parts: int
) -> None:
    op = ops.get("attention_grad")
    case = op.case(size, dtype, inputs=family, causal=causal)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = torch.cat([each.flatten() for each in run(parts, *inputs, causal, None)])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
