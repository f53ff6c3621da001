"""`compare --count` and `emulate --count` print what kernels do, without a GPU."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call
from kept_sources import kept_source

from cuda_ref.build import compiler
from suite.core.paths import ROOT

pytestmark = pytest.mark.skipif(not compiler.can_check(), reason="only GCC can build kernels that count; set CXX=g++")
MINE = """#include "common.cuh"
__global__ void add(const float* a, const float* b, float* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = blockIdx.x * 128LL + threadIdx.x;
    if (i < n) out[i] = a[i * stride_a] + b[i * stride_b];
}
extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32) return cudaErrorNotSupported;
    add<<<(n + 127) / 128, 128, 0, stream>>>((const float*)a, (const float*)b, (float*)out, n, stride_a, stride_b);
    return cudaGetLastError();
}
"""


def test_compare_counts_a_file_of_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = kept_source("mine.cu", MINE)
    words = ["compare", "--op", "vector_add", "--shape", "N=1024", "--dtype", "fp32", "--device", "cpu", "--no-time"]
    words += [
        "--inputs",
        "none",
        "--impl",
        "torch",
        "--with",
        str(mine),
        "--count",
        "--out",
        str(tmp_path / "out"),
    ]
    assert call(monkeypatch, *words) == 0
    with (tmp_path / "out" / "vector_add.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["implementation"]: row for row in csv.DictReader(file)}
    row = rows["with/mine"]
    counts = [row[f"count_{each}"] for each in ("loads", "load_sectors", "stores", "store_sectors", "flops")]
    assert counts == ["64", "256", "32", "128", "1024"]
    assert (row["count_barriers"], row["counted"]) == ("0", "N=1024 float32")
    assert rows["torch"]["counted"].startswith("none: torch runs")
    assert "bank" in capsys.readouterr().out


def test_emulate_counts_each_kernel() -> None:
    source = kept_source(
        "program.cu",
        "#include <cuda_runtime.h>\n__global__ void fill(float* x) { x[threadIdx.x * 2] = 1; }\n"
        "int main(int n, char**) { if (n > 1) return 3; float* x; cudaMalloc(&x, 1024); fill<<<1, 128>>>(x);\n"
        "return 7; }\n",
    )
    found = emulate(source)
    assert (found.returncode, found.stderr) == (7, "program.cu: emulated on the CPU\n")
    *heads, values = found.stdout.splitlines()
    assert " ".join(heads).split() == ["kernel", "launches", "blocks", "warps", "stores", "sectors", "stored"]
    assert values.split() == ["fill", "1", "1", "4", "4", "32"]
    assert emulate(source, "x").stderr.endswith("no kernel was launched, so nothing is counted\n")


def emulate(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "suite", "emulate", "--count", str(source), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
