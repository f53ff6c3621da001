"""What CONTRIBUTING.md says, done: a new implementation, operation and framework, each by its files alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("suite", "triton_kernels", "jax_impls", "cuda_ref", "torch_impls", "numpy_impls")

OPERATION = '''
"""scale: y = 2 x."""
from suite.numerics import check
from suite.problem.operation import DTYPES, Operation
from suite.problem import generators as _draw
from suite.problem import families as f


class Scale(Operation):
    name = "scale"
    formula = "y[i] = 2 x[i]"
    dims = ("N",)
    families = {"normal": f.normal(), "sizes": f.sizes((1,), (1025,)), "nan": f.nan((1025,))}

    def default_cases(self, device_type):
        return [self.case((100,), dtype) for dtype in DTYPES]

    def operands(self, case):
        return (case.shape,)

    def truth(self, inputs, case):
        for index in _draw.blocks(case.shape):
            value = 2.0 * inputs[0][index].double()
            yield check.Truth(index, value, check.rounding_limit(value, case.dtype))

    def output_shape(self, case):
        return case.shape

    def flops(self, case):
        return case["N"]

    def workspace_bytes(self, case):
        return _draw.block_bytes(case.shape)


OP = Scale()
'''

CUDA_SOURCE = """
#include "common.cuh"

template <typename T>
__global__ void scale_kernel(const T* x, T* out, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(2.0f * to_float(x[i]));
}

extern "C" int scale(const void* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 256)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        scale_kernel<T><<<grid, 256, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), n);
    });
}
"""

CUDA_LAUNCHER = """
import torch
from cuda_ref import build


def scale(x):
    out = torch.empty_like(x)
    build.launch("scale", "scale", x.device, x, out, x.numel(), build.DTYPES[x.dtype])
    return out
"""

ADAPTER = '''
"""Plain Python lists."""
import torch
from suite.frameworks.base import Adapter


class Lists(Adapter):
    name = "lists"
    folder = "list_impls"
    packages = ()
    devices = ("cpu",)

    def to_native(self, tensor):
        return tensor.tolist()

    def to_torch(self, array):
        return torch.tensor(array)

    def wait(self, result):
        pass


ADAPTER = Lists()
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, to add files to."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def statuses(checkout: Path, *arguments: str) -> dict[tuple[str, str], str]:
    """(implementation, dtype) -> status of `compare` on the CPU in the copy."""
    command = [sys.executable, "-m", "suite", "compare", *arguments, "--device", "cpu", "--no-time", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {(row["implementation"], row["dtype"]): row["status"] for row in json.loads(done.stdout)["rows"]}


def test_an_implementation_is_one_file(checkout: Path) -> None:
    plain = (checkout / "torch_impls" / "vector_add.py").read_text(encoding="utf-8")
    (checkout / "torch_impls" / "vector_add_mine.py").write_text(plain, encoding="utf-8")
    found = statuses(checkout, "--op", "vector_add", "--impl", "torch/*", "--shape", "N=1000")
    assert found == {("torch/mine", dtype): "ok" for dtype in ("float32", "float16", "bfloat16")}


def test_an_operation_is_one_file_here_and_one_in_each_folder(checkout: Path) -> None:
    (checkout / "suite" / "ops" / "scale.py").write_text(OPERATION, encoding="utf-8")
    for folder in ("torch_impls", "numpy_impls"):
        (checkout / folder / "scale.py").write_text("def scale(x):\n    return x + x\n", encoding="utf-8")
    (checkout / "cuda_ref" / "scale.cu").write_text(CUDA_SOURCE, encoding="utf-8")
    (checkout / "cuda_ref" / "scale.py").write_text(CUDA_LAUNCHER, encoding="utf-8")
    found = statuses(checkout, "--op", "scale", "--inputs", "all")
    assert set(found.values()) == {"ok"}
    assert {name for name, _ in found} == {"cuda", "torch", "numpy"}


def test_a_framework_is_one_adapter_and_one_folder(checkout: Path) -> None:
    (checkout / "suite" / "backends" / "lists.py").write_text(ADAPTER, encoding="utf-8")
    (checkout / "list_impls").mkdir()
    (checkout / "list_impls" / "vector_add.py").write_text(
        "def vector_add(a, b):\n    return [x + y for x, y in zip(a, b)]\n", encoding="utf-8"
    )
    found = statuses(checkout, "--op", "vector_add", "--impl", "lists", "--shape", "N=1000", "--dtype", "float32")
    assert found == {("lists", "float32"): "ok"}
