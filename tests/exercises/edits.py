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
    "11_atomics": [("atomicAdd(out, sums[0])", "*out = sums[0]", "value: ")],
    "12_prefix_sum": [
        ("        __syncthreads();\n        sums[n] += before;", "        sums[n] += before;", "race: "),
        ("n >= distance ? sums[n - distance] : 0.0f", "sums[n - distance]", "reads byte -4 of sums"),
    ],
    "13_transpose": [("tile[threadIdx.x][i]", "tile[i][threadIdx.x]", "value: ")],
    "14_softmax": [
        ("expf(row[n] - largest);", "expf(row[n]);", "not finite"),
        ("    sum = sum_of_warp(sum);\n", "", "value: "),
    ],
    "15_online_softmax": [("sum * expf(before - largest) + ", "sum + ", "value: ")],
    "16_matmul": [("b[k * N + n]", "b[n * K + k]", "value: ")],
    "17_tiled_matmul": [
        ("acc);\n        __syncthreads();\n", "acc);\n", "race: "),
        ("b_tile[k][tx], acc", "b_tile[tx][k], acc", "value: "),
    ],
    "18_register_tile": [("a_tile[ty + i * ROWS][k]", "a_tile[ty + i][k]", "value: ")],
    "19_vector_loads": [
        ("x.w + y.w", "x.w", "value: "),
        (
            """    const float4 x = reinterpret_cast<const float4*>(a)[i], y = reinterpret_cast<const float4*>(b)[i];
    reinterpret_cast<float4*>(out)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
""",
            "    for (int64_t j = 4 * i; j < 4 * i + 4; ++j) out[j] = a[j] + b[j];\n",
            "float4 is not used",
        ),
    ],
    "20_double_buffer": [("wait_prior(1)", "wait_prior(2)", "not finite")],
    "21_tensor_core": [
        ("b + k * N + n, unsigned(N)", "b + k * N + n, unsigned(K)", "reads index 3072 of b"),
        ("b + k * N + n, unsigned(N)", "b + n * N + k, unsigned(N)", "value: "),
    ],
}
