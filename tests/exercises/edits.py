"""Wrong files of the exercises: for each exercise, edits of its answer and a part of the reason that each must get."""

from __future__ import annotations

CUDA = {
    "01_copy": [("out[i] = x[i];", "out[i] = x[0];", "value: ")],
    "02_index": [("int64_t(blockIdx.x) * blockDim.x + threadIdx.x", "threadIdx.x", "not finite")],
    "03_tail": [("if (i < N) out", "out", "reads index 1")],
    "04_launch": [
        ("ceil_div<int64_t>(N, block.x)", "N / block.x + (N < block.x)", "not finite"),
        ("ceil_div<int64_t>(N, block.x)", "N / block.x + 1", "warps: 36, where 32 do"),
    ],
    "05_device_function": [
        ("expf(-x)", "expf(x)", "value: "),
        ("__device__ float silu(float x) {", "float silu(float x) {", "does not use `__device__`"),
    ],
    "06_two_dimensions": [
        ("out[n * M + m]", "out[n * N + m]", "writes index"),
    ],
    "07_grid_stride": [
        ("i += int64_t(gridDim.x) * blockDim.x", "i += N", "not finite"),
        (
            "int64_t i = first; i < N; i += int64_t(gridDim.x) * blockDim.x",
            "int64_t i = 5 * first; i < N && i < 5 * first + 5; ++i",
            "load sectors: ",
        ),
    ],
    "08_coalescing": [
        (
            """m = blockIdx.y * blockDim.y + threadIdx.y;
    const int64_t n = blockIdx.x * blockDim.x + threadIdx.x;""",
            """n = blockIdx.y * blockDim.y + threadIdx.y;
    const int64_t m = blockIdx.x * blockDim.x + threadIdx.x;""",
            "load sectors: 4,096, where 512 do",
        ),
    ],
    "09_shared_memory": [
        ("    __syncthreads();\n", "", "race: "),
        (
            "    __syncthreads();\n    out[begin + n] = row[N - 1 - n];",
            "    out[begin + n] = x[begin + N - 1 - n];",
            "does not use `__syncthreads`",
        ),
    ],
    "10_tree_sum": [
        ("        __syncthreads();\n    }", "    }", "race: "),
        (
            "sums[threadIdx.x] += sums[threadIdx.x + half];\n        __syncthreads();",
            "{ sums[threadIdx.x] += sums[threadIdx.x + half]; __syncthreads(); }",
            "the warp may hang; grid (5, 1, 1), block (256, 1, 1), 0 bytes of dynamic shared memory (M=5",
        ),
        (
            "    for (int half = THREADS / 2; half > 0; half /= 2) {\n        if (threadIdx.x < half) "
            "sums[threadIdx.x] += sums[threadIdx.x + half];\n        __syncthreads();\n    }",
            "    if (threadIdx.x == 0) for (int i = 1; i < THREADS; ++i) sums[0] += sums[i];",
            "shared loads: ",
        ),
    ],
    "11_warp_sum": [
        ("distance = 16", "distance = 8", "value: "),
        ("sum += __shfl", "if (threadIdx.x < distance) sum += __shfl", "which takes no part in the shuffle"),
    ],
    "12_atomics": [("atomicAdd(out, sums[0])", "*out = sums[0]", "race: ")],
    "13_prefix_sum": [
        ("        __syncthreads();\n        sums[n] += before;", "        sums[n] += before;", "race: "),
    ],
    "14_transpose": [("[TILE + 1]", "[TILE]", "conflicts: ")],
    "15_softmax": [
        ("expf(row[n] - largest);", "expf(row[n]);", ""),
    ],
    "16_online_softmax": [("sum * expf(before - largest) + ", "sum + ", "value: ")],
    "17_matmul": [("b[k * N + n]", "b[n * K + k]", "value: ")],
    "18_tiled_matmul": [
        ("acc);\n        __syncthreads();\n", "acc);\n", "race: "),
    ],
    "19_register_tile": [("a_tile[ty + i * ROWS][k]", "a_tile[ty + i][k]", "value: ")],
    "20_vector_loads": [
        (
            """    const float4 x = reinterpret_cast<const float4*>(a)[i], y = reinterpret_cast<const float4*>(b)[i];
    reinterpret_cast<float4*>(out)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
""",
            "    for (int64_t j = 4 * i; j < 4 * i + 4; ++j) out[j] = a[j] + b[j];\n",
            "does not use `float4`",
        ),
    ],
    "21_double_buffer": [("wait_prior(1)", "wait_prior(2)", "not finite")],
    "22_tensor_core": [
        ("b + k * N + n, unsigned(N)", "b + k * N + n, unsigned(K)", "reads index 3072 of b"),
    ],
}

TRITON = {
    "01_load": [("tl.load(x_ptr + offs)", "tl.load(x_ptr + offs - tl.program_id(0))", "value: ")],
    "02_mask": [("total, mask=mask)", "total)", "")],
    "03_fused": [
        ("tl.exp(-x)", "tl.exp(x)", "value: "),
        ("x / (1 + tl.exp(-x))", "x * tl.exp(x) / (1 + tl.exp(x))", "not finite"),
    ],
    "04_two_dimensions": [("offs_n * M + offs_m, tile", "offs_m * N + offs_n, tile", "value: ")],
    "05_row_sum": [("other=0.0", "other=1.0", "value: ")],
    "06_softmax": [('float("-inf")', "0.0", "value: "), (" - tl.max(row, axis=0)", "", "not finite")],
    "07_loop": [
        ("mask=offs < N, other=0.0", "mask=offs < N", "does not use `other`"),
    ],
    "08_atomics": [("tl.atomic_add(out_ptr, tl.sum(x, axis=0))", "tl.store(out_ptr, tl.sum(x, axis=0))", "value: ")],
    "09_layer_norm": [
        ("tl.where(offs < N, row - mean, 0.0)", "row - mean", "value: "),
        ("tl.sum(centred * centred, axis=0) / N", "tl.sum(row * row, axis=0) / N - mean * mean", ""),
    ],
    "10_online_softmax": [("total * tl.exp(largest - larger) + ", "total + ", "value: ")],
    "11_matmul": [
        (
            "offs_k[:, None] * N + offs_n",
            "offs_k[:, None] + offs_n * N",
            "",
        ),
        (
            'acc = tl.dot(a, b, acc, input_precision="ieee")',
            "acc = tl.dot(a, b, acc)",
            "does not use `input_precision`",
        ),
    ],
    "12_order": [("inside % rows, inside // rows", "inside // rows, inside % rows", "never written")],
    "13_attention": [
        ("acc * shrink[:, None] + ", "acc + ", "value: "),
        ("scores - larger[:, None]", "scores", "not finite"),
    ],
}

JAX = {
    "01_arrays": [
        ("jnp.exp(-x)", "jnp.exp(x)", "value: "),
        ("(1 + jnp.exp(-x))", "(1 + jnp.exp(-x)", "SyntaxError"),
        ("return x / (1 + jnp.exp(-x))", "return jnp.array([v / (1 + jnp.exp(-v)) for v in x])", "uses `for`"),
        ("return x / (1 + jnp.exp(-x))", "return x * jnp.exp(x) / (1 + jnp.exp(x))", "not finite"),
    ],
    "02_broadcasting": [("a[:, None, :] - b[None, :, :]", "a[None, :, :] - b[:, None, :]", "shape: ")],
    "03_softmax": [("axis=1, keepdims=True))", "keepdims=True))", "not finite")],
    "04_immutable": [("    return x.at[1:].add(-x[:-1])", "    x[1:] -= x[:-1]\n    return x", "immutable")],
    "05_jit": [("return jnp.where(x > 0, x, x / 10)", "return x if x > 0 else x / 10", "truth value")],
    "06_vmap": [
        ("jax.vmap(matvec)(a, x)", "matvec(a, x)", "TypeError"),
        ("jax.vmap(matvec)(a, x)", "(a @ x[:, :, None])[:, :, 0]", "does not use `vmap`"),
    ],
    "07_grad": [("jnp.sum(silu(x))", "silu(x)", "TypeError")],
    "08_scan": [("state = state / 2 + row", "state = state / 2", "value: ")],
    "09_precision": [
        (", preferred_element_type=jnp.float32", "", "dtype: "),
        (", preferred_element_type=jnp.float32)", ").astype(jnp.float32)", "value: "),
        (
            "jnp.matmul(a, b, preferred_element_type=jnp.float32)",
            "jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32))",
            "does not use `preferred_element_type`",
        ),
    ],
    "10_pallas": [("a_ref[...] + b_ref[...]", "a_ref[...]", "value: ")],
    "11_block_spec": [
        ("lambda i, j: (j, i)", "lambda i, j: (i, j)", "value: "),
        (
            "in_spec = pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j))",
            "in_spec = pl.BlockSpec((M, N))",
            "a block has 32 x 32",
        ),
    ],
    "12_pallas_rows": [("row - jnp.max(row)", "row", "not finite")],
    "13_pallas_matmul": [
        (
            "    @pl.when(pl.program_id(2) == 0)\n    def begin():\n        out_ref[...] = jnp.zeros_like(out_ref)\n",
            "    out_ref[...] = jnp.zeros_like(out_ref)\n",
            "value: ",
        )
    ],
    "14_pallas_attention": [
        ("acc * shrink + ", "acc + ", "value: "),
        ("jnp.exp(scores - larger)", "jnp.exp(scores)", "not finite"),
        (
            "jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))",
            "jnp.max(scores, axis=1, keepdims=True)",
            "not finite",
        ),
    ],
}
