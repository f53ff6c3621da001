"""The report of ptxas on the kernels: registers, and no spills."""

from __future__ import annotations

from pathlib import Path

import pytest
from thinning import thorough_unless

from cuda_ref import build
from cuda_ref.build import compiler

needs_nvcc = pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))
SPILLS = {
    "softmax/registers": 320,
    "rms_norm/registers": 320,
    "add_rms_norm/registers": 720,
    "cross_entropy/cross_entropy": 40,
    "cross_entropy/registers": 520,
    "quantize/registers": 584,
    "cumsum/registers": 64,
    "layer_norm_grad/persistent": 56,
    "layer_norm/registers": 1000,
    "attention_grad/attention_grad": 64,
    "attention_grad/tiles": 64,
    "attention/attention": 288,
    "attention/decode": 32,
    "paged_attention/decode": 184,
    "all_reduce/_shares": 8,
    "matmul/stream": 144,
    "int4_matmul/few": 0,
    "top_k/maxima": 16,
    "matmul/mma": 32,
    "matmul/_narrow": 72,
    "lstm/persistent": 64,
    "all_reduce/overlapped": 12,
    "all_reduce/packets": 48,
    "all_reduce/two_shot": 64,
    "max_pool2d_grad/max_pool2d_grad": 40,
    "max_pool2d_grad/winners": 56,
}
"""Bytes that kernels may keep in local memory: most of them are rows in the registers of 1,024 threads.

The plain kernel of attention has 128 float32 numbers in each thread for D=256,
and spills on the newest GPUs alone. paged_attention/decode spills 184 bytes with float8 on GPUs before compute
capability 8.9, which have no instruction that converts it, and at most 16 on others. The sum over
eight ranks in bfloat16 spills a number. int4_matmul/few has a stack frame on the newest GPUs, and spills nothing."""
LARGE = ("lstm/persistent", "matmul/async_copies", "matmul/double_buffered", "matmul/mma")
KERNELS = sorted(str(each.relative_to(build.HERE).with_suffix("")) for each in build.HERE.glob("*/*.cu"))
IN_MAKE_TEST = {(name, "sm_80") for name in [each for each in KERNELS if each not in LARGE][1::48]}
"""Every 48th kernel, for sm_80: all of them take minutes."""

REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90a'
ptxas info    : Function properties for _Z3addPf
    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Function properties for _Z4helpv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def test_resources_are_read_from_the_report() -> None:
    add, helper = compiler.parse_resources(REPORT, "sm_90a")
    assert add.function in ("add(float*)", "_Z3addPf")
    assert (add.registers, add.stack_bytes, add.spill_store_bytes, add.spill_load_bytes) == (40, 24, 8, 12)
    assert (add.spill_bytes, helper.spill_bytes) == (20, 0)


@needs_nvcc
def test_a_spill_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "greedy.cu"
    path.write_text("""
        __global__ void __launch_bounds__(1024) greedy(float* x) {
            float v[200];
            for (int i = 0; i < 200; i++) v[i] = x[i * 1024];
            __syncthreads();
            for (int i = 0; i < 200; i++) x[i * 1024] = v[i] * v[199 - i];
        }
    """)
    (found,) = build.resources(path, "sm_90a")
    assert found.function == "greedy(float*)"
    assert found.registers == 64
    assert found.spill_bytes > 0 or found.stack_bytes > 0


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, marks=thorough_unless((name, arch) in IN_MAKE_TEST), id=f"{name}-{arch}")
        for place, name in enumerate(KERNELS)
        for arch in ("sm_80", "newest")
    ],
)
def test_no_kernel_spills(name: str, arch: str) -> None:
    """On the oldest and on the newest GPUs; `test_sm90_machine_code.py` has the kernels that only Hopper runs."""
    if arch == "newest":
        arch = build.newest_arch()
        if name in LARGE:
            pytest.skip("takes long, and has the code of sm_80")
    if not build.supports(name, arch):
        pytest.skip(f"{name}.cu needs {build.requires(name)}")
    found = build.resources(name, arch)
    assert found
    assert [each for each in found if each.spill_bytes > SPILLS.get(name, 0)] == []
    assert name in SPILLS or [each for each in found if each.stack_bytes] == []
