"""Known limits of libraries and compilers, which the parity tests and validation/error_ratios.py expect."""

from __future__ import annotations

from pathlib import Path

from suite.numerics.formats import DTYPES

CPU_FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
ALL, WIDE, HALF, BF16 = tuple(DTYPES), ("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16",)
FLOAT8 = ("float8_e4m3fn",)
EVERY = (*ALL, *FLOAT8)
FLUSHED = "XLA flushes subnormal numbers to zero on a CPU; float16's it has widened before"
FLUSHED_16 = "cuDNN's kernels flush subnormal bfloat16 numbers to zero on a GPU"
MISREAD_8 = "Triton's interpreter reads the NaN of float8_e4m3fn as 480"
OVERFLOWS = "PyTorch computes 1 / (1 + exp(-x)) as it stands: where exp overflows, what is subnormal becomes 0"
DOT_PRODUCTS = "the bfloat16 instructions of this CPU, which oneDNN uses, flush subnormal numbers to zero"
BETWEEN = "the bfloat16 tiles of this CPU (AMX), which oneDNN uses, multiply what lies between strided elements by 0"
AMX = BF16 if "amx_bf16" in CPU_FLAGS else ()
LEAKS = "weights of 0 meet hidden values in a product, and 0 times NaN or infinity is NaN"
OF_OTHERS = "XLA multiplies the rows of other experts by 0, and 0 times NaN or infinity is NaN"
ZEROS = "PyTorch's kernels give zeros, not NaN, where every score of a query is minus infinity"
BESIDE = "the bfloat16 tiles of this CPU (AMX), which oneDNN uses, multiply the first elements of the next row by 0"
ONE_INFINITE = "PyTorch's float16 kernel gives 0, not NaN, where one score of a query is infinite"
SCALED_16 = "scaled q and k are rounded to bfloat16, which moves scores of hundreds by more than float8 sums do"
ADDS_THE_MASK = f"a mask is added to scores, where NaN stays NaN; and {LEAKS}"

KNOWN: dict[tuple[str, str, str, str], tuple[tuple[str, ...], str]] = {
    ("cpu", "vector_add", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matrix_add", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "sigmoid", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "sigmoid", "jax/words", "subnormal"): (BF16, FLUSHED),
    ("cpu", "sigmoid", "torch", "subnormal"): (WIDE, OVERFLOWS),
    ("cpu", "sum", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "quantize", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "cumsum", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "softmax", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "rms_norm", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matmul", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "matmul", "triton/auto", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "matmul", "triton/parts", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "matmul", "triton/pipelined", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "block_scaled_matmul", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "block_scaled_matmul", "triton/persistent", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "matmul", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matmul", "torch", "subnormal"): (BF16 if "avx512_bf16" in CPU_FLAGS else (), DOT_PRODUCTS),
    ("cpu", "matmul", "torch", "strided"): (AMX, BETWEEN),
    **{("cpu", "grouped_matmul", "jax", each): (ALL, OF_OTHERS) for each in ("nan", "infinity", "unused_nan")},
    **{("cpu", "grouped_block_scaled_matmul", "jax", each): (FLOAT8, OF_OTHERS) for each in ("nan", "unused_nan")},
    ("cpu", "grouped_block_scaled_matmul", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "grouped_block_scaled_matmul", "triton/persistent", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "grouped_matmul", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "grouped_matmul", "torch", "subnormal"): (BF16 if "avx512_bf16" in CPU_FLAGS else (), DOT_PRODUCTS),
    ("cpu", "linear_sigmoid", "torch", "strided"): (AMX, BETWEEN),
    ("cpu", "linear_sigmoid_grad", "torch", "strided"): (AMX, BETWEEN),
    ("cpu", "conv2d", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "conv2d", "torch", "subnormal"): (BF16 if "avx512_bf16" in CPU_FLAGS else (), DOT_PRODUCTS),
    ("cpu", "max_pool2d", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "attention", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "attention", "torch", "subnormal"): (AMX, DOT_PRODUCTS),
    ("cpu", "attention", "torch/flash", "subnormal"): (AMX, DOT_PRODUCTS),
    ("cpu", "attention", "triton/auto", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "attention", "triton/float8", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "attention_grad", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "attention_grad", "triton/float8", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "attention", "jax", "infinity"): (ALL, LEAKS),
    ("cpu", "attention", "jax", "nan"): (EVERY, LEAKS),
    ("cpu", "attention", "torch", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch", "nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "jax", "window_nan"): (EVERY, LEAKS),
    ("cpu", "attention", "torch", "window_nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "torch/flash", "window_nan"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/math", "window_nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "torch/flash", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/flash", "nan"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/math", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/math", "nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "torch", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "attention", "torch/flash", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "attention", "torch/math", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "multi_head_attention", "jax", "nan"): (ALL, LEAKS),
    ("cpu", "multi_head_attention", "torch", "nan"): (ALL, ADDS_THE_MASK),
    ("cuda", "sigmoid", "torch", "subnormal"): (WIDE, OVERFLOWS),
    **{("cuda", "grouped_block_scaled_matmul", "jax", each): (FLOAT8, OF_OTHERS) for each in ("nan", "unused_nan")},
    ("cuda", "attention", "jax", "infinity"): (ALL, LEAKS),
    ("cuda", "attention", "jax", "nan"): (EVERY, LEAKS),
    ("cuda", "attention", "jax", "window_nan"): (EVERY, LEAKS),
    ("cuda", "attention", "jax/cudnn", "window_nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch", "window_nan"): (EVERY, LEAKS),
    ("cuda", "attention", "torch/flash", "window_nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch/math", "window_nan"): (EVERY, ADDS_THE_MASK),
    ("cuda", "attention", "jax/cudnn", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "jax/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "jax/cudnn", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch", "infinity"): (ALL, LEAKS),
    ("cuda", "attention", "torch", "nan"): (EVERY, LEAKS),
    ("cuda", "attention", "torch", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch/cudnn", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "torch/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch/cudnn", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch/flash", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "torch/flash", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch", "minus_infinity_all"): (ALL, ZEROS),
    ("cuda", "attention", "torch/cudnn", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "jax/cudnn", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "torch/flash", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "torch/math", "minus_infinity_all"): (ALL, ZEROS),
    ("cuda", "attention", "torch/math", "infinity"): (ALL, ADDS_THE_MASK),
    ("cuda", "attention", "torch/math", "nan"): (EVERY, ADDS_THE_MASK),
    ("cuda", "multi_head_attention", "jax", "nan"): (ALL, LEAKS),
    ("cuda", "multi_head_attention", "jax/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "multi_head_attention", "torch", "nan"): (ALL, LEAKS),
}
"""Known limits of a library or a compiler: (device, operation, implementation, family) -> (dtypes, why).

An entry that no longer holds fails its test. The suite's own kernels have entries only for the tools that run them.
"""

SOME_DRAWS: dict[tuple[str, str, str], tuple[tuple[str, ...], str]] = {
    **{("attention", each, "infinity@1"): (("float16",), ONE_INFINITE) for each in ("torch", "torch/flash")},
    ("attention", "torch", "large_logits"): (FLOAT8, SCALED_16),
    **{("attention_grad", each, "large_logits"): (FLOAT8, SCALED_16) for each in ("torch", "jax")},
    **{("matmul", "torch", each): (AMX, BESIDE) for each in ("infinity", "nan")},
}
"""Known limits on a CPU that some draws of inputs show: (operation, implementation, family) -> (dtypes, why)."""
