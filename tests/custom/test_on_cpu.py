"""Files that name a GPU, on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from custom_files import CPU, HEAD, operation

from suite.core.errors import UsageError

GPU_PROBLEM = '''
import torch
import torch.nn as nn

DEVICE = torch.device("cuda")
n = 8
assert DEVICE.type != "cuda", "redirected"


class Model(nn.Module):
    """Runs on "cuda"."""

    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n, device="cuda:0").cuda()
        self.register_buffer("shift", torch.ones(n).to(f"cuda:{0}"))

    def forward(self, x):
        return self.fc(x.cuda(non_blocking=True)) + self.shift.to(DEVICE)


def get_inputs():
    x = torch.rand(3, n, device="cuda")
    assert x.device.type in ("cpu", "meta") or x.device.type == "cuda"
    return [torch.where(x < torch.rand(1, device="cuda"), x, 0.5)]


def get_init_inputs():
    return [n]
'''


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_file_that_names_a_gpu_runs_on_a_cpu(tmp_path: Path) -> None:
    op = operation(tmp_path, GPU_PROBLEM, "gpu", "kernelbench")
    case = op.default_cases("cpu")[0]
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    assert truth.value.device == CPU
    assert op.program.function(case, torch.float32, CPU)(*inputs).device == CPU


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine\.py needs the package no_such_package, .*pip install no_such_package"):
        operation(tmp_path, HEAD + "import no_such_package.part\n")
