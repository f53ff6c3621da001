"""The kernels of the timer's proof compile; and the proof on a GPU."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.doctor.timer_proof import groups, proof, work
from suite.hardware.device import Device


def test_the_cuda_work_compiles_without_spills() -> None:
    from cuda_ref import build
    from cuda_ref.build import compiler

    if compiler.nvcc() is None:
        pytest.skip("needs nvcc")
    found = {resources.function.split("(")[0]: resources for resources in build.resources(work.SOURCE, "sm_90a")}
    assert set(found) == {"spin_kernel", "add_one_kernel", "stamped_kernel"}
    assert all(resources.stack_bytes == 0 for resources in found.values())
    assert not build.supports(work.SOURCE, "host")  # it reads clocks that a host does not have


def test_the_triton_work_compiles_for_another_gpu() -> None:
    code = (
        "import triton\n"
        "from triton.backends.compiler import GPUTarget\n"
        "from triton.compiler import ASTSource\n"
        "from suite.doctor.timer_proof.work_triton import add_one_kernel, spin_kernel\n"
        "target = GPUTarget('cuda', 90, 32)\n"
        "spin = ASTSource(spin_kernel, signature={'cycles': 'i32', 'elapsed_ptr': '*i64'}, constexprs={})\n"
        "ptx = triton.compile(spin, target=target, options={'num_warps': 1}).asm['ptx']\n"
        "assert ptx.count('%clock64') == 2, ptx\n"
        "signature = {'x_ptr': '*fp32', 'out_ptr': '*fp32', 'N': 'i32', 'BLOCK': 'constexpr'}\n"
        "add = ASTSource(add_one_kernel, signature=signature, constexprs={'BLOCK': 2048})\n"
        "triton.compile(add, target=target)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_lengths_of_spins() -> None:
    spins = groups.Spins(1980.0)
    assert spins.cycles(1000) == 1_980_000
    assert math.isclose(spins.clock_step, 15 / 1980)
    with pytest.raises(UsageError):
        proof.prove(Device("cpu", name="a CPU"))


alone = pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the GPU for itself: run without -n")


@pytest.mark.gpu
@alone
def test_the_timer_is_proved_on_this_gpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suite", "doctor", "--timer", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
