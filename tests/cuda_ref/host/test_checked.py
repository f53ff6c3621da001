"""Accesses out of bounds and races are found, with thread, line and index; right kernels pass.

Each entry of FAULTS and RIGHT is the body of a kernel. All are compiled as one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from kept_sources import kept_source

from cuda_ref import build
from cuda_ref._runtime import kept
from cuda_ref.build import compiler

pytestmark = [
    pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu"))),
    pytest.mark.skipif(not compiler.can_check(), reason="accesses are checked by GCC only; set CXX=g++"),
]

N = 1000
"""Elements of `a` and `b`, which are float32."""
HEADER = (
    '#include <stdlib.h>\n#include "common.cuh"\n__constant__ float table[8] = {1};\n'
    "__device__ float sums[64];\n__device__ unsigned finished;\n"
    "__device__ float forgets(float x) { x = x + 1; }\n"
)


class Kernel(NamedTuple):
    body: str
    found: str = ""
    """Part of the message."""
    blocks: int = 4
    threads: int = 256
    shared: int = 0


FAULTS = {
    # global memory
    "no_guard": Kernel("b[i] = a[i];", "reads index 10"),
    "guard_by_one_too_many": Kernel("if (i <= n) b[i] = 1;", "writes index 1000 of b, which has 1000 elements"),
    "guard_of_the_read_only": Kernel("float x = 0; if (i < n) x = a[i]; b[i] = x;", "writes index 10"),
    "before_the_start": Kernel("if (i < n) b[i] = a[i - 1];", "reads index -1 of a"),
    "last_neighbour": Kernel("if (i < n) b[i] = a[i + 1];", "reads index 1000 of a"),
    "ceiling_of_the_grid": Kernel("for (int k = 0; k < 4; k++) b[i * 4 + k] = 1;", "writes index 1000 of b", 1, 251),
    "vector_over_the_end": Kernel(
        "if (i * 4 <= n) ((float4*)b)[i] = make_float4(1, 2, 3, 4);",
        "writes index 250 of b, which has 250 elements of 16",
        blocks=1,
    ),
    "vector_read_over_the_end": Kernel(
        "if (i == 0) { float4 x = *(const float4*)(a + n - 4 + 4); b[0] = x.x; }", "reads index 1000 of a"
    ),
    "bytes_for_elements": Kernel(
        "if (i < n) ((char*)b)[i * 4 + 4] = 0;", "index 4000 of b, which has 4000 elements of 1"
    ),
    "row_for_column": Kernel("int r = i / 100, c = i % 100; if (i < n) b[c * 100 + r] = a[i];", "of b"),
    "row_pitch_of_another": Kernel("int r = i / 10, c = i % 10; if (i < n) b[i] = a[r * 11 + c];", "of a"),
    "tail_of_a_tile": Kernel("for (int k = 0; k < 1024; k += 256) b[k + t] = a[k + t];", "of a", 1, 256),
    "index_overflow": Kernel(
        "if (i < n) b[i] = a[int(unsigned(i) * 2147483649u)];", "a pointer of the host, or an index"
    ),
    "index_far": Kernel("b[i + 100000000] = 1;", "no memory of the device", 1, 1),
    "null": Kernel("const float* p = nullptr; b[i] = p[i];", "no memory of the device", 1, 1),
    "grid_stride_from_the_end": Kernel("for (int k = n; k >= 0; k -= 64) b[k] = a[k];", "index 1000 of", 1, 1),
    "neighbour_above_and_below": Kernel("if (i < n) b[i] = a[i] + a[i - 32] + a[i + 32];", "of a"),
    "reversed": Kernel("if (i < n) b[i] = a[n - i];", "reads index 1000 of a"),
    "halves_of_floats": Kernel("if (i < n) b[i] = to_float(((const __half*)a)[i * 4]);", "of a"),
    "atomic": Kernel("atomicAdd(b + i, 1.0f);", "of b"),
    "atomic_load": Kernel("b[0] = __atomic_load_n((unsigned*)a + n + t, 0);", "reads index 1000 of a", 1, 1),
    "atomic_store": Kernel("__atomic_store_n((unsigned*)b + n + t, 0, 0);", "writes index 1000 of b", 1, 1),
    "read_only_load": Kernel("b[0] = __ldg(a + n + t);", "reads index 1000 of a", 1, 1),
    # constant memory, variables of global memory, arrays of a thread
    "constant": Kernel("b[t] = table[t];", "reads index 8 of table, which has 8 elements of 4 bytes", 1, 32),
    "constant_by_pointer": Kernel("const float* p = table; b[t] = p[t - 1];", "reads index -1 of table", 1, 8),
    "variable": Kernel("sums[t + 60] = 1;", "writes index 64 of sums, which has 64 elements of 4 bytes", 1, 32),
    "local": Kernel(
        "float x[8]; for (int k = 0; k < 8; k++) x[k] = k * a[t]; b[t] = x[t % 9];",
        "index 8 of an array of type 'float [8]'",
        blocks=1,
    ),
    "local_before": Kernel("int x[4] = {t, 2, 3, 4}; b[t] = x[t % 4 - 1] + a[t];", "index -1 of an array", 1),
    "local_loop": Kernel(
        "float x[4]; for (int k = 0; k <= n / 250; k++) x[k] = a[k]; b[t] = x[t % 4];", "index 4 of an array", 1
    ),
    "local_row": Kernel("float x[2][3] = {}; x[t % 2][t % 4] = a[t]; b[t] = x[1][t % 3];", "type 'float [3]'", 1),
    # shared memory
    "shared_by_one": Kernel(
        "__shared__ float s[256]; s[t + 1] = 1; __syncthreads(); b[t] = s[t];", "byte 1024 of s", 1
    ),
    "shared_before": Kernel(
        "__shared__ float s[64]; s[t] = 1; __syncthreads(); b[t] = s[t - 1];",
        "byte -4 of s, which has 256 bytes",
        1,
        64,
    ),
    "shared_too_small": Kernel("__shared__ float s[128]; s[t] = 1; __syncthreads(); b[t] = s[255 - t];", "of s", 1),
    "dynamic_none_asked": Kernel(
        "extern __shared__ float d[]; d[t] = 1;", "of dynamic shared memory, of which the launch asks for 0 bytes", 1
    ),
    "dynamic_bytes_for_elements": Kernel(
        "extern __shared__ float d[]; d[t] = 1;", "of which the launch asks for 256 bytes", 1, 256, 256
    ),
    "dynamic_by_one": Kernel(
        "extern __shared__ float d[]; d[t + 1] = 1;", "byte 1024 of dynamic shared memory", 1, 256, 1024
    ),
    "transposed_tile": Kernel(
        "__shared__ float s[8][32]; s[t % 32][t / 32] = 1; __syncthreads(); b[t] = s[t / 32][t % 32];", "of s", 1
    ),
    # races
    "no_barrier": Kernel("__shared__ float s[256]; s[t] = t; b[t] = s[255 - t];", "race: ", 1),
    "no_barrier_of_neighbours": Kernel("__shared__ float s[64]; s[t] = t; b[t] = s[(t + 1) % 64];", "race: ", 1, 64),
    "no_barrier_at_the_end_of_a_loop": Kernel(
        "__shared__ float s[256]; float sum = 0; for (int k = 0; k < 3; k++)"
        " { s[t] = a[k * 256 + t]; __syncthreads(); sum += s[255 - t]; } b[t] = sum;",
        "no __syncthreads between",
        1,
    ),
    "no_barrier_within_a_warp": Kernel(
        "__shared__ float s[32]; s[t] = t; b[t] = s[31 - t];", "no __syncthreads or __syncwarp between", 1, 32
    ),
    "tree_without_barriers": Kernel(
        "__shared__ float s[256]; s[t] = a[t]; __syncthreads();"
        " for (int k = 128; k > 0; k /= 2) if (t < k) s[t] += s[t + k]; b[t] = s[0];",
        "race: ",
        1,
    ),
    "tree_without_the_last_barriers": Kernel(
        "__shared__ float s[256]; s[t] = a[t]; __syncthreads(); for (int k = 128; k > 16; k /= 2)"
        " { if (t < k) s[t] += s[t + k]; __syncthreads(); }"
        " if (t < 16) for (int k = 16; k > 0; k /= 2) s[t] += s[t + k]; b[t] = s[t];",
        "race: ",
        1,
    ),
    "all_write_one": Kernel("__shared__ int s; s = t; __syncthreads(); b[t] = s;", "race: writes byte 0 of s", 1),
    "flag_without_barrier": Kernel("__shared__ int s; if (t == 0) s = 5; b[t] = s;", "race: ", 1),
    "sum_without_atomic": Kernel(
        "__shared__ float s; if (t == 0) s = 0; __syncthreads(); s += 1; __syncthreads(); b[t] = s;", "race: ", 1
    ),
    "atomic_beside_a_plain_read": Kernel(
        "__shared__ int s; if (t == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); b[t] = s;", "race: ", 1
    ),
    "dynamic_race": Kernel(
        "extern __shared__ float d[]; d[t] = t; b[t] = d[t ^ 64];", "of dynamic shared memory", 1, 256, 1024
    ),
    "scan_in_place": Kernel(
        "__shared__ float s[128]; s[t] = a[t]; __syncthreads(); for (int k = 1; k < 128; k *= 2)"
        " { if (t >= k) s[t] += s[t - k]; __syncthreads(); } b[t] = s[t];",
        "race: ",
        1,
        128,
    ),
    # values that nobody has written
    "sum_without_a_start": Kernel(
        "__shared__ float s; atomicAdd(&s, 1); __syncthreads(); b[t] = s;",
        "adds to byte 0 of s, which no thread has written",
        1,
    ),
    "tail_of_a_tree": Kernel(
        "__shared__ float s[256]; if (i < n) s[t] = a[i]; __syncthreads(); for (int k = 128; k > 0; k /= 2)"
        " { if (t < k) s[t] += s[t + k]; __syncthreads(); } if (t == 0) b[blockIdx.x] = s[0];",
        "writes to index 3 of b what comes from byte 928 of s, which no thread has written, read at kernels.cu",
    ),
    "counters_without_a_start": Kernel(
        "__shared__ int s[64]; s[t] += 1; __syncthreads(); ((int*)b)[t] = s[t];", "comes from byte", 1, 64
    ),
    "lane_that_has_returned": Kernel(
        "if (t >= 20) return; float x = 1; for (int k = 16; k > 0; k /= 2) x += __shfl_down_sync(~0u, x, k); b[t] = x;",
        "comes from lane 20, which takes no part in the shuffle with the mask 0xffffffff",
        1,
        32,
    ),
    # races in global memory
    "global_without_barrier": Kernel("b[t] = t; b[t + 256] = b[255 - t];", "race: ", 1),
    "global_within_a_warp": Kernel("b[t] = t; b[t + 32] = b[31 - t];", "no __syncthreads or __syncwarp between", 1, 32),
    "blocks_write_one": Kernel("b[t] = blockIdx.x;", "of another block has written"),
    "blocks_read_each_other": Kernel(
        "if (i < n) b[i] = i; __syncthreads(); if (i < 256) b[i] = b[i + 256];", "of another block"
    ),
    "blocks_add_to_one": Kernel("if (t == 0) b[0] += 1;", "race: reads index 0 of b"),
    "in_place": Kernel("if (i > 0 && i < n - 1) b[i] = b[i - 1] + a[i];", "race: "),
    "histogram": Kernel("((int*)b)[t % 8]++;", "race: reads index 0 of b", 1),
    "atomic_beside_a_plain_write": Kernel("atomicAdd(b + t % 8, 1.0f); b[t % 8] = t;", "race: reads", 1),
    "variable_of_blocks": Kernel("sums[t] = i;", "of another block has written", 2, 64),
    "last_block_without_fence": Kernel(
        "__shared__ bool last; if (t == 0) { sums[blockIdx.x] = i + 1; last = atomicAdd(&finished, 1u) % 4 == 3; }"
        " __syncthreads(); if (last && t == 0) b[0] = sums[0] + sums[1] + sums[2] + sums[3];",
        "reads index 0 of sums",
    ),
    "last_block_of_a_tile": Kernel(
        "__shared__ float s[2][64]; s[0][t] = a[t]; __syncthreads(); s[1][63 - t] = s[0][t]; b[t] = s[1][t];",
        "race: ",
        1,
        64,
    ),
}

RIGHT = {
    "guarded": Kernel("if (i < n) b[i] = a[i];"),
    "atomic_flag": Kernel(
        "if (i == 0) __atomic_store_n((unsigned*)b, 1u, __ATOMIC_RELEASE);"
        "if (i < n && i && __atomic_load_n((unsigned*)b, __ATOMIC_ACQUIRE) < 2) b[i] = a[i];"
    ),
    "grid_stride": Kernel("for (int k = i; k < n; k += gridDim.x * blockDim.x) b[k] = a[k];", blocks=2),
    "vectors": Kernel("if (i < n / 4) ((float4*)b)[i] = ((const float4*)a)[i];", blocks=1),
    "neighbours": Kernel("if (i < n) b[i] = (i ? a[i - 1] : 0) + (i < n - 1 ? a[i + 1] : 0);"),
    "reversed_tile": Kernel(
        "__shared__ float s[250]; int k = blockIdx.x * 250 + t; s[t] = a[k]; __syncthreads(); b[k] = s[249 - t];",
        threads=250,
    ),
    "tree": Kernel(
        "__shared__ float s[256]; s[t] = t; __syncthreads(); for (int k = 128; k > 0; k /= 2)"
        " { if (t < k) s[t] += s[t + k]; __syncthreads(); } b[t] = s[0];",
        blocks=1,
    ),
    "warp_tree": Kernel(
        "__shared__ float s[32]; s[t] = t; __syncwarp(); for (int k = 16; k > 0; k /= 2)"
        " { float x = t < k ? s[t + k] : 0; __syncwarp(); if (t < k) s[t] += x; __syncwarp(); } b[t] = s[0];",
        blocks=1,
        threads=32,
    ),
    "shuffles": Kernel(
        "float x = t; for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k); b[t] = x;", blocks=1
    ),
    "atomics": Kernel(
        "__shared__ int s; if (t == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); __syncthreads(); b[t] = s;", blocks=1
    ),
    "all_write_the_same": Kernel("__shared__ int s; s = 7; __syncthreads(); b[t] = s;", blocks=1),
    "dynamic": Kernel("extern __shared__ float d[]; d[t] = t; __syncthreads(); b[t] = d[t ^ 64];", "", 1, 256, 1024),
    "double_buffer": Kernel(
        "__shared__ float s[2][256]; float sum = 0; for (int k = 0; k < 3; k++)"
        " { s[k % 2][t] = a[k * 256 + t]; __syncthreads(); sum += s[k % 2][255 - t]; } b[t] = sum;",
        blocks=1,
    ),
    "own_elements": Kernel("__shared__ float s[256]; s[t] = a[t]; s[t] *= 2; b[t] = s[t];", blocks=1),
    "row_left_on_purpose": Kernel(
        "__shared__ float s[8][32]; s[0][t] = t; __syncthreads(); b[t] = s[0][255 - t];", blocks=1
    ),
    "global_barrier": Kernel("b[t] = t; __syncthreads(); b[t + 256] = b[255 - t];", blocks=1),
    "blocks_write_the_same": Kernel("b[t] = 5;"),
    "bytes_of_threads": Kernel("((char*)b)[i] = t;"),
    "halves_of_blocks": Kernel("((short*)b)[t * 4 + blockIdx.x] = i;"),
    "atomics_of_blocks": Kernel("atomicAdd(b + t % 8, 1.0f);"),
    "last_block": Kernel(
        "__shared__ bool last; if (t == 0) { sums[blockIdx.x] = i + 1; __threadfence();"
        " last = atomicAdd(&finished, 1u) % 4 == 3; }"
        " __syncthreads(); if (last && t == 0) b[0] = sums[0] + sums[1] + sums[2] + sums[3];",
    ),
    "rows_of_a_tile_that_nobody_needs": Kernel(
        "__shared__ float s[256]; if (i < n) s[t] = a[i]; __syncthreads();"
        " float x = s[t] + s[t ^ 1]; if (i < n) b[i] = x;"
    ),
    "lanes_whose_value_nobody_needs": Kernel(
        "if (t >= 8) return; float x = a[t]; for (int k = 4; k > 0; k /= 2) x += __shfl_down_sync(0xff, x, k);"
        " if (t == 0) b[0] = x;",
        blocks=1,
        threads=32,
    ),
    "minus_one_beside_a_tail": Kernel(
        "__shared__ int s[64]; if (t < 40) s[t] = t; __syncthreads(); int x = s[t]; ((int*)b)[t] = t < 40 ? x : -1;",
        "",
        1,
        64,
    ),
    "variables": Kernel("sums[t] = t; __syncthreads(); b[t] = sums[63 - t];", "", 1, 64),
    "constants": Kernel("b[t] = table[t % 8];", blocks=1),
    "local_array": Kernel("float x[8]; for (int k = 0; k < 8; k++) x[k] = k * t; b[t] = x[(t * 3) % 8];", blocks=1),
}

LEFT_EARLY = {
    "barrier_under_an_if": Kernel(
        "__shared__ float s[64]; s[t] = t; __syncthreads();"
        " for (int k = 1; k < 64; k *= 2)"
        " if (t >= k) { float x = s[t - k]; __syncthreads(); s[t] += x; __syncthreads(); } b[t] = s[t];",
        "of the same warp has passed an earlier one and returned",
        1,
        64,
    ),
    "threads_without_work": Kernel(
        "if (t >= 50) return; __shared__ float s[64]; s[t] = t; __syncthreads(); b[t] = s[49 - t]; __syncthreads();",
        "",
        1,
        64,
    ),
    "warps_that_are_done": Kernel(
        "__shared__ float s[64]; s[t] = t; __syncthreads(); if (t >= 32) return;"
        " b[t] = s[63 - t]; __syncthreads(); b[t] = s[31 - t];",
        "",
        1,
        64,
    ),
}
"""A lane that passes a barrier and returns, while its warp goes on to the next one, is a fault."""
KERNELS = {**FAULTS, **RIGHT, **LEFT_EARLY, "no_return": Kernel("b[t] = forgets(a[t]);", "", 1, 32)}


WORDS = (
    "#include <cuda_pipeline.h>\n"
    "__global__ void words_kernel(const __half* a, float* b, int before) {\n"
    "    __shared__ __align__(16) char part[16];\n"
    "    const void* chunk = (const void*)(uintptr_t(a) & ~uintptr_t(15));\n"
    "    if (threadIdx.x == 0) __pipeline_memcpy_async(part, chunk, 16, 10);\n"
    "    __pipeline_commit();\n    __pipeline_wait_prior(0);\n"
    "    const unsigned* words = (const unsigned*)(uintptr_t(a) & ~uintptr_t(3));\n"
    "    b[threadIdx.x] = words[int(threadIdx.x) - before];\n}\n"
    'extern "C" int words(const void* a, float* b, int64_t before, cudaStream_t stream, LaunchRecord* record) {\n'
    "    record->set(1, 32);\n    words_kernel<<<1, 32, 0, stream>>>((const __half*)a, b, int(before));\n"
    "    return cudaGetLastError();\n}\n"
)
"""Copies 6 bytes from the 16 around the first element of `a`, and reads words of 4 bytes from there on."""


def text_of(name: str, kernel: Kernel) -> str:
    return (
        f"__global__ void {name}_kernel(const float* a, float* b, int n) {{\n"
        f"    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n    {kernel.body}\n}}\n"
        f'extern "C" int {name}(const float* a, float* b, int64_t n, cudaStream_t stream, LaunchRecord* record) {{\n'
        f"    {name}_kernel<<<{kernel.blocks}, {kernel.threads}, {kernel.shared}, stream>>>(a, b, int(n));\n"
        f"    return cudaGetLastError();\n}}\n"
    )


@pytest.fixture(scope="module")
def source() -> Path:
    return kept_source("kernels.cu", HEADER + "".join(text_of(*each) for each in KERNELS.items()) + WORDS)


def run(source: Path, name: str) -> str:
    """The message of the launch; empty if it has none."""
    a, b = torch.arange(2 * N, dtype=torch.float32)[:N], torch.zeros(N + 512)[256 : N + 256]
    try:
        with build.checked():
            build.launch(source, name, a.device, a, b, N)
    except build.CudaError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_its_thread_and_line(source: Path, name: str) -> None:
    said = run(source, name)
    lines = source.read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if text.startswith(f"__global__ void {name}_kernel")) + 2
    assert FAULTS[name].found in said, said
    assert f"kernels.cu:{line}: " in said, said
    assert "block (" in said
    assert "thread (" in said


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(source: Path, name: str) -> None:
    assert run(source, name) == ""


@pytest.mark.parametrize("name", LEFT_EARLY)
def test_a_warp_whose_lanes_return_one_by_one_is_named(source: Path, name: str) -> None:
    said = run(source, name)
    assert LEFT_EARLY[name].found in said
    assert bool(said) == bool(LEFT_EARLY[name].found), said


def test_a_function_without_its_return_is_named(source: Path) -> None:
    assert "kernels.cu:6: a function ends without the `return` of its value" in run(source, "no_return")


def test_a_word_around_the_first_element_of_a_misaligned_operand_is_in_its_allocation(source: Path) -> None:
    a, b = torch.zeros(65, dtype=torch.float16)[1:], torch.zeros(32)
    with build.checked():
        build.launch(source, "words", a.device, a, b, 0)
        with pytest.raises(build.CudaError, match="reads index"):
            build.launch(source, "words", a.device, a, b, 1)
        with pytest.raises(build.CudaError, match="reads index"):
            build.launch(source, "words", a.device, a[:62], b, 0)


def test_no_call_is_kept_while_accesses_are_checked() -> None:
    """A kept call would name no operands to the check, and a call that was kept before would not be checked."""
    from cuda_ref.vector_add import vector_add

    x, y, plans = torch.ones(1000), torch.ones(1000), []
    for _ in range(4):
        vector_add(x, y)
    with build.checked():
        for _ in range(4):
            assert torch.equal(vector_add(x, y), x + y)
            plans.append(len(kept._thread.plans))
    assert plans == [0, 0, 0, 0]


def test_launches_outside_are_not_checked(source: Path) -> None:
    b = torch.zeros(1, 2 * N)
    build.launch(source, "guard_by_one_too_many", b.device, b, b, N)
    assert b[0, N] == 1
