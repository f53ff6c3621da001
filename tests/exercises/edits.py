"""Wrong files of the exercises: for each exercise, edits of its answer and a part of the reason that each must get."""

from __future__ import annotations

CUDA = {
    "01_copy": [("out[i] = x[i];", "out[i] = x[0];", "value: ")],
    "02_index": [("int64_t(blockIdx.x) * blockDim.x + threadIdx.x", "threadIdx.x", "not finite")],
    "03_tail": [("if (i < N) out", "out", "reads index 1")],
    "04_launch": [("ceil_div<int64_t>(N, block.x)", "N / block.x + (N < block.x)", "not finite")],
    "05_device_function": [("expf(-x)", "expf(x)", "value: ")],
    "06_two_dimensions": [
        ("out[n * M + m]", "out[n * N + m]", "writes index"),
        ("m < M && n < N", "m < N && n < M", "index"),
    ],
    "07_grid_stride": [("i += int64_t(gridDim.x) * blockDim.x", "i += N", "not finite")],
    "08_shared_memory": [("    __syncthreads();\n", "", "race: ")],
    "09_tree_sum": [
        ("        __syncthreads();\n    }", "    }", "race: "),
        ("half > 0", "half > 1", "value: "),
    ],
    "10_warp_sum": [("distance = 16", "distance = 8", "value: ")],
}
