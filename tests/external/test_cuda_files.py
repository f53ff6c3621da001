"""A user's `.cu` file, built for the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from custom_files import operation
from external_files import CPU, CUDA_FILE, check, external, status, write

from cuda_ref.build.compiler import missing
from suite import ops
from suite.custom.operation import CustomOperation
from suite.external.implementation import ExternalImplementation, from_files
from suite.external.source import read
from suite.worker.pool import Pool

pytestmark = pytest.mark.skipif(missing("cpu") is not None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with Pool(CPU) as pool:
        yield pool


def test_a_cu_file_is_built_and_launched_like_one_of_the_tree(worker: Pool, tmp_path: Path) -> None:
    right = external(write(tmp_path / "own add.cu", CUDA_FILE))
    assert (right.name, right.framework, right.adapter.mode(CPU)) == ("with/own add", "cuda", "emulated")
    reply = check(worker, right)
    assert (status(reply), reply.reason) == ("ok", "")


def test_a_build_error_has_its_line_in_the_file(worker: Pool, tmp_path: Path) -> None:
    broken = check(worker, external(write(tmp_path / "broken.cu", CUDA_FILE.replace("out[i] =", "out[j] ="))))
    assert status(broken) == "error"
    assert re.search(r"broken\.cu:6:\d+: error: .*j.* was not declared", broken.reason)
    assert str(tmp_path) not in broken.reason


def test_a_refused_launch_has_its_line_in_the_file(worker: Pool, tmp_path: Path) -> None:
    refused = check(
        worker, external(write(tmp_path / "refused.cu", CUDA_FILE.replace("grid, 256, 0", "grid, 9999, 0")))
    )
    assert re.fullmatch(r"CudaError: .*cudaErrorInvalid.* \(refused\.cu:9\)", refused.reason)


def test_instructions_that_a_cpu_lacks_are_unsupported(worker: Pool, tmp_path: Path) -> None:
    hopper = check(worker, external(write(tmp_path / "hopper.cu", "// requires: sm_90a\n" + CUDA_FILE)))
    assert status(hopper) == "unsupported"
    assert hopper.reason == "hopper.cu uses instructions of sm_90a, which the CPU does not have"


def test_a_launcher_declines_a_case_by_an_error_code(worker: Pool, tmp_path: Path) -> None:
    text = CUDA_FILE.replace(
        "    const dim3 grid", "    if (dtype == FLOAT32) return cudaErrorNotSupported;\n    const dim3 grid"
    )
    file = external(write(tmp_path / "declines.cu", text))
    declined = check(worker, file)
    assert status(declined) == "unsupported"
    assert declined.reason.startswith("vector_add in declines.cu declines the case: cudaErrorNotSupported")
    other = check(worker, file, ops.get("vector_add").case((100,), "float16"))
    assert (status(other), other.reason) == ("ok", "")


REFERENCE = """import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["M=3,N=40"]

def reference(x: Float[Tensor, "M N"], scale: Float[Tensor, "N"]) -> Tensor:
    return x * scale
"""
OWN = """#include "common.cuh"

template <typename T>
__global__ void scale_rows(const T* x, const T* scale, T* out, int64_t M, int64_t N) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < M * N) out[i] = from_float<T>(to_float(x[i]) * to_float(scale[i % N]));
}

extern "C" int scaled(const void* x, const void* scale, void* out, int64_t M, int64_t N, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(M * N, 64)));
    record->set(grid, 64);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        scale_rows<T><<<grid, 64, 0, stream>>>((const T*)x, (const T*)scale, (T*)out, M, N);
    });
}
"""


@pytest.mark.thorough
def test_a_cu_file_can_have_a_users_operation(worker: Pool, tmp_path: Path) -> None:
    op = operation(tmp_path, REFERENCE, "scaled")
    case = op.case((3, 40), "bfloat16")
    right = check(worker, _own(tmp_path / "right.cu", OWN, op), case)
    assert (status(right), right.reason) == ("ok", "")
    fewer = OWN.replace("void* out, int64_t M, int64_t N", "void* out, int64_t N").replace("M * N", "N")
    other = check(worker, _own(tmp_path / "other.cu", fewer, op), case)
    assert status(other) == "error"
    assert "must take (pointer, pointer, pointer, int64_t, int64_t, int64_t)" in other.reason
    assert "the arguments of the reference, the result, M, N, dtype" in other.reason


def _own(path: Path, text: str, op: CustomOperation) -> ExternalImplementation:
    (file,) = from_files([write(path, text)], [op])["scaled"]
    assert file.fault == ""
    return file


def test_a_problem_of_kernelbench_takes_no_cu(tmp_path: Path) -> None:
    file = read(write(tmp_path / "k.cu", OWN))
    assert file.fault_for("ModelNew", own=True) == "k.cu: a problem of KernelBench takes a .py with the class ModelNew"
