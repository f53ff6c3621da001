"""int4_matmul of `triton/persistent` on a GPU: every configuration, at a size with many tiles for each program."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking.judge import judge
from triton_kernels._runtime.kept import forget
from triton_kernels.int4_matmul import persistent

M, N, K = 4096, 4096, 4096
"""64 steps for each tile: registers that are given to a next step too early show here."""


@pytest.mark.gpu
@pytest.mark.parametrize("zeros", [False, True], ids=["", "zeros"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("config", range(5))
def test_every_configuration_agrees(
    device: str, monkeypatch: pytest.MonkeyPatch, config: int, dtype: str, zeros: bool
) -> None:
    if torch.cuda.get_device_capability(device)[0] < 9:
        pytest.skip("needs compute capability 9.0")
    monkeypatch.setattr(persistent.persistent_int4_kernel, "configs", [persistent.CONFIGS[config]])
    forget()  # launches of other configurations
    op = ops.get("int4_matmul")
    case = op.case((M, N, K), dtype, zeros=zeros)
    inputs = op.make_inputs(case, 1, torch.device(device))
    first, *others = [persistent.int4_matmul(*inputs) for _ in range(3)]
    verdict = judge(first, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
    assert all(torch.equal(first, each) for each in others), "another call, another result"
