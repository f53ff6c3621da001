"""Counts of emulated kernels are those that a calculation by hand gives.

Each entry of KERNELS is the body of a kernel, launched as 4 blocks of 256 threads: 32 warps. They are one file.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from kept_sources import kept_source

from cuda_ref import build
from cuda_ref.build import compiler
from cuda_ref.build.counting import Counts, flops_of_block, read, total
from cuda_ref.build.programs import program

pytestmark = [
    pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu"))),
    pytest.mark.skipif(not compiler.can_check(), reason="only GCC can build kernels that count; set CXX=g++"),
]

N = 1024
"""Threads of a launch. `a` and `b` have 32 N elements of float32, aligned to 64 bytes."""
WARPS = N // 32


class Kernel(NamedTuple):
    body: str
    counts: dict[str, int]
    """Those that are not zero, besides launches, blocks and warps."""


def moved(
    loads: int, load_sectors: int, stores: int = WARPS, store_sectors: int = N // 8, **more: int
) -> dict[str, int]:
    return {"loads": loads, "load_sectors": load_sectors, "stores": stores, "store_sectors": store_sectors, **more}


def shared(loads: int, stores: int, **more: int) -> dict[str, int]:
    return {"stores": WARPS, "store_sectors": N // 8, "shared_loads": loads, "shared_stores": stores, **more}


KERNELS = {
    # global memory
    "copy": Kernel("b[i] = a[i];", moved(WARPS, N // 8)),
    "stride_2": Kernel("b[i] = a[2 * i];", moved(WARPS, N // 4)),
    "stride_32": Kernel("b[i] = a[32 * i];", moved(WARPS, N)),
    "shifted_by_one": Kernel("b[i] = a[i + 1];", moved(WARPS, N // 8 + WARPS)),
    "stored_with_stride": Kernel("b[32 * i] = a[i];", moved(WARPS, N // 8, WARPS, N)),
    "float4": Kernel("((float4*)b)[i] = ((const float4*)a)[i];", moved(WARPS, N // 2, store_sectors=N // 2)),
    "float4_sum": Kernel(
        "float4 x = ((const float4*)a)[i]; ((float4*)b)[i] = make_float4(x.x + 1, x.y + 1, x.z + 1, x.w + 1);",
        moved(WARPS, N // 2, store_sectors=N // 2, flops=4 * N),
    ),
    "four_scalars": Kernel(
        "\n#pragma unroll\nfor (int k = 0; k < 4; k++) b[4 * i + k] = a[4 * i + k];",
        moved(4 * WARPS, 4 * N // 2, 4 * WARPS, 4 * N // 2),
    ),
    "one_for_all": Kernel("b[i] = a[7];", moved(WARPS, WARPS)),
    "guarded": Kernel("if (i < 1000) b[i] = a[i];", moved(32, 125, 32, 125, divergent=1)),
    "read_only": Kernel("b[i] = __ldg(a + i);", moved(WARPS, N // 8)),
    "halves": Kernel("((__half*)b)[i] = ((const __half*)a)[i];", moved(WARPS, N // 16, store_sectors=N // 16)),
    # shared memory
    "tile": Kernel(
        "__shared__ float s[256]; s[t] = i; __syncthreads(); b[i] = s[255 - t];",
        shared(WARPS, WARPS, barriers=WARPS),
    ),
    "column": Kernel(
        "__shared__ float s[32][32]; s[t % 32][t / 32] = i; __syncthreads(); b[i] = s[t % 32][t / 32];",
        shared(WARPS, WARPS, barriers=WARPS, conflicts=2 * 31 * WARPS),
    ),
    "padded_column": Kernel(
        "__shared__ float s[32][33]; s[t % 32][t / 32] = i; __syncthreads(); b[i] = s[t % 32][t / 32];",
        shared(WARPS, WARPS, barriers=WARPS),
    ),
    "shared_stride_2": Kernel(
        "__shared__ float s[512]; s[2 * t] = i; __syncthreads(); b[i] = s[2 * t];",
        shared(WARPS, WARPS, barriers=WARPS, conflicts=2 * WARPS),
    ),
    "broadcast": Kernel(
        "__shared__ float s[256]; s[t] = i; __syncthreads(); b[i] = s[t / 32];",
        shared(WARPS, WARPS, barriers=WARPS),
    ),
    "shared_float4": Kernel(
        "__shared__ float4 s[256]; s[t] = make_float4(i, i, i, i); __syncthreads(); float4 x = s[255 - t]; b[i] = x.y;",
        shared(WARPS, WARPS, barriers=WARPS),
    ),
    # control flow
    "odd_and_even": Kernel("if (t % 2) b[i] = 1; else a2[i] = 2;", moved(0, 0, 2 * WARPS, 2 * N // 8, divergent=WARPS)),
    "by_warps": Kernel("if (t / 32 % 2) b[i] = 1; else a2[i] = 2;", moved(0, 0, WARPS, N // 8)),
    "in_other_rounds": Kernel(  # a lane loads in every second round, the even ones in other rounds than the odd ones
        "float x = 0;\n#pragma unroll 1\nfor (int k = 0; k < 8; k++) if ((t + k) % 2) x += a[i];\nb[i] = x;",
        moved(8 * WARPS, 8 * N // 8, divergent=8 * WARPS, flops=4 * N),
    ),
    "as_many_rounds_as_the_lane": Kernel(
        "float x = 0;\n#pragma unroll 1\nfor (int k = 0; k <= t % 32; k++) x += a[k];\nb[i] = x;",
        moved(32 * WARPS, 32 * WARPS, divergent=31 * WARPS, flops=33 * 16 * WARPS),
    ),
    "met_again": Kernel(
        "float x;\nif (t % 4 == 0) x = a[i]; else x = a2[i];\nb[i] = x;",
        moved(2 * WARPS, 2 * N // 8, divergent=WARPS),
    ),
    "a_barrier_in_a_loop": Kernel(
        "__shared__ float s[256]; float x = 0; for (int k = 0; k < 5; k++)"
        " { s[t] = k; __syncthreads(); x += s[255 - t]; __syncthreads(); } b[i] = x;",
        shared(5 * WARPS, 5 * WARPS, barriers=10 * WARPS, flops=5 * N),
    ),
    "a_shuffled_sum": Kernel(
        "float x = a[i]; for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k);"
        " if (t % 32 == 0) b[i] = x;",
        moved(WARPS, N // 8, WARPS, WARPS, divergent=WARPS, flops=5 * N),
    ),
    # arithmetic
    "fma": Kernel("b[i] = fmaf(a[i], a[i], 1.0f);", moved(WARPS, N // 8, flops=2 * N)),
    "three_operations": Kernel("b[i] = (a[i] + 2.0f) * a[i] - 3.0f;", moved(WARPS, N // 8, flops=3 * N)),
    "atomics": Kernel("atomicAdd(b, 1.0f);", {"atomics": WARPS, "flops": N}),
    "shared_atomics": Kernel("__shared__ int s; atomicExch(&s, 1); atomicMax((int*)b, 3);", {"atomics": 2 * WARPS}),
}


def text_of(name: str, kernel: Kernel) -> str:
    return (
        f"__global__ void {name}_kernel(float* a, float* b, float* a2) {{\n"
        f"    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n    {kernel.body}\n}}\n"
        f'extern "C" int run_{name}(float* a, float* b, float* a2, cudaStream_t stream, LaunchRecord* record) {{\n'
        f"    {name}_kernel<<<{N // 256}, 256, 0, stream>>>(a, b, a2);\n    return cudaGetLastError();\n}}\n"
    )


@pytest.fixture(scope="module")
def source() -> Path:
    return kept_source("kernels.cu", '#include "common.cuh"\n' + "".join(text_of(*each) for each in KERNELS.items()))


def count(source: Path, name: str) -> list[Counts]:
    given = [torch.ones(32 * N) for _ in range(3)]
    with build.counted() as counts:
        build.launch(source, f"run_{name}", given[0].device, *given)
    return counts


@pytest.mark.parametrize("name", KERNELS)
def test_counts_are_those_of_a_calculation_by_hand(source: Path, name: str) -> None:
    [counts] = count(source, name)
    expected = {"launches": 1, "blocks": N // 256, "warps": WARPS, **KERNELS[name].counts}
    found = {key: value for key, value in vars(counts).items() if value and key != "kernel"}
    assert found == {key: value for key, value in expected.items() if value}
    assert counts.kernel == f"{name}_kernel"


def test_each_context_counts_only_its_own_launches(source: Path) -> None:
    assert count(source, "copy") == count(source, "copy")
    with build.counted() as counts:
        pass
    assert counts == []
    assert total(counts) is None


def test_kernels_are_counted_one_by_one(source: Path) -> None:
    given = [torch.ones(32 * N) for _ in range(3)]
    with build.counted() as counts:
        for name in ("copy", "stride_2", "copy"):
            build.launch(source, f"run_{name}", given[0].device, *given)
    assert [(each.kernel, each.launches, each.load_sectors) for each in counts] == [
        ("copy_kernel", 2, 256),
        ("stride_2_kernel", 1, 256),
    ]
    together = total(counts)
    assert together is not None
    assert (together.loads, together.load_sectors) == (96, 512)


def test_an_access_out_of_bounds_is_an_error_here_too(source: Path) -> None:
    short, enough = torch.ones(100), torch.ones(32 * N)
    with build.counted(), pytest.raises(build.CudaError, match=r"reads index 1\d\d of a, which has 100 elements"):
        build.launch(source, "run_copy", short.device, short, enough, enough)


def test_a_program_writes_its_counts(tmp_path: Path) -> None:
    source = kept_source(
        "program.cu",
        "#include <cuda_runtime.h>\n__global__ void fill(float* x) { x[threadIdx.x] = 1; }\n"
        "int main() { float* x; cudaMalloc(&x, 512); fill<<<1, 128>>>(x); fill<<<1, 64>>>(x); cudaFree(x); }\n",
    )
    built, path = program(source, count=True), tmp_path / "counts"
    subprocess.run([built], check=True, env={**os.environ, "CUDA_HOST_COUNTS": str(path)})
    [counts] = read(path, built)
    assert (counts.kernel, counts.launches, counts.stores, counts.store_sectors) == ("fill", 2, 6, 24)


def test_without_objdump_there_are_no_flops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert flops_of_block(tmp_path / "library.so", 0) is None
