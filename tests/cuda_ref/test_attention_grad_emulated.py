"""The gradients of attention for Hopper on a CPU: the kernel's own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.attention_grad_wgmma import attention_grad
from suite import ops
from suite.checking.verdict import judge

EMULATED = Path(__file__).parent / "emulated"
NAME = "attention_grad_wgmma"
CASES = [  # B, H, H_kv, S_q, S_k, D; each more than a tile of queries and of keys, and no multiple
    pytest.param((2, 4, 2, 150, 290, 128), "bfloat16", True, "normal", id="causal"),
    pytest.param((1, 1, 1, 500, 400, 128), "bfloat16", False, "normal", id="stages are used again"),
    pytest.param((1, 2, 1, 700, 300, 64), "bfloat16", True, "normal", id="queries without keys"),
    pytest.param((1, 4, 2, 20, 70, 64), "bfloat16", True, "minus_infinity_first", id="infinite keys"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel's file, where the headers that it includes are the emulated ones."""
    folder = tmp_path_factory.mktemp("emulated")
    for each in ("attention_hopper.cuh", "attention_grad_hopper.cuh"):
        shutil.copy(build.HERE / each, folder)
    for header in EMULATED.glob("*.cuh"):
        shutil.copy(header, folder)
    text = (build.HERE / f"{NAME}.cu").read_text().replace("// requires: sm_90a", "")
    path = folder / f"{NAME}.cu"
    common = folder / "attention_hopper.cuh"
    both_types = common.read_text()  # one type takes half the time to build
    common.write_text(both_types.replace("case FLOAT16: return dispatch_head(__half());", ""))
    path.write_text(text)
    return path


def forward(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, causal: bool, scale_log2: float
) -> None:
    """What the forward kernel stores."""
    k, v = (x.float().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q.float() @ k.mT * (scale_log2 / math.log2(math.e))
    if causal:
        hidden = ~torch.ones(scores.shape[2:], dtype=torch.bool).tril(scores.shape[3] - scores.shape[2])
        scores.masked_fill_(hidden, -math.inf)
    blind = (scores == -math.inf).all(dim=3)
    out = (torch.softmax(scores, dim=3) @ v).masked_fill(blind[..., None], 0.0)
    delta[:, :, : q.shape[2]] = (out * do).sum(dim=3)
    lse[:, :, : q.shape[2]] = (torch.logsumexp(scores, dim=3) * math.log2(math.e)).masked_fill(blind, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dtype", "causal", "family"), CASES)
def test_gradients_agree(
    monkeypatch: pytest.MonkeyPatch, source: Path, nan_outputs: None,
    size: tuple[int, ...], dtype: str, causal: bool, family: str,
) -> None:  # fmt: skip
    launch = build.launch

    def launch_emulated(name: str, function: str, device: torch.device, *args: Any) -> None:
        if name == NAME:
            return launch(source, function, device, *args)
        *_, given_causal, scale_log2, _ = args
        return forward(*args[:6], given_causal, scale_log2)

    monkeypatch.setattr(build, "launch", launch_emulated)
    op = ops.get("attention_grad")
    case = op.case(size, dtype, inputs=family, causal=causal)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = torch.cat([each.flatten() for each in attention_grad(*inputs, causal=causal)])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
