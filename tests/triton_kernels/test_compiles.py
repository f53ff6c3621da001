"""The machine code that the compiler makes of the Triton and Gluon kernels, for GPUs that need not be present."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from thinning import THOROUGH

from cuda_ref.build import cache as _cache

PROGRAM = Path(__file__).with_name("triton_compile.py")
DTYPES = ["float32", "float16", "bfloat16"]
SINGLE = {"sum_kernel", "sum_parts_kernel", "column_sums_kernel", "count_kernel", "clear_kernel"}
"""Kernels of few numbers, such as the second launch of a sum and the first of a loss."""
PLAIN = {  # id: launches, as triton_compile.py reads them; of each, all configurations are compiled, or the first
    "elementwise": [
        *[
            f"{operation} {dtype}"
            for operation in ("vector_add", "sigmoid", "sigmoid_fast_exponential")
            for dtype in ("float32", "bfloat16")
        ],
        *["matrix_add bfloat16", "matrix_add_flat bfloat16", "matrix_add_grouped bfloat16"],
        *["vector_add huge", "matrix_add tall", "matrix_add_grouped tall"],
        *["silu_mul bfloat16 8192x14336", "silu_mul_grad bfloat16 8192x14336"],
        *["rope bfloat16 4x4096x32x8x128"],
        *["sigmoid permuted", "sigmoid_fast_exponential permuted"],
    ],
    "rows": [
        *["softmax bfloat16 16384x4096", "softmax_exp2 bfloat16 16384x4096", "layer_norm bfloat16 1024x131072"],
        *["rms_norm_grad bfloat16 16384x4096", "layer_norm_grad bfloat16 16384x4096"],
        *["add_rms_norm bfloat16 16384x4096", "add_rms_norm bfloat16 1024x131072"],
        *["quantize bfloat16 1024x131072", "quantize bfloat16 16384x4096", "quantize float32 16384x4096"],
        *["rms_norm_quantize bfloat16 1024x131072", "rms_norm_quantize bfloat16 16384x4096"],
        *["rms_norm_quantize_held bfloat16 16384x4096", "silu_mul_quantize bfloat16 8192x14336"],
        *["cumsum bfloat16 16384x4096", "cumsum bfloat16 1024x131072", "cumsum_lookback bfloat16 64x1048576"],
        *["top_k bfloat16 64x128256x50", "top_k_bitonic bfloat16 64x128256x50", "top_k_bitonic float32 16384x256x8"],
        *["cross_entropy bfloat16 4096x32000", "cross_entropy_registers bfloat16 4096x32000"],
        *["cross_entropy_registers bfloat16 4096x128256", "cross_entropy_registers float32 4096x4096"],
        *["sum bfloat16 16384x4096", "sum_parts bfloat16 16384x4096"],
    ],
    "matmul": [
        *["matmul bfloat16 nn 4096 first", "matmul bfloat16 nt 4096 first", "matmul tf32 nt 4096 first"],
        "matmul bfloat16 nn 16x14336x4096",
        *["matmul float8_e4m3fn nt 4096 first", "matmul float32 nn 4096 first", "matmul_naive bfloat16 nn 4096"],
        *["matmul_pipelined bfloat16 nn 4096", "matmul_pipelined float16 nn 1024 first"],
        *["matmul_pipelined bfloat16 nn 99x101x103 first", "matmul_pipelined bfloat16 nt 4096 first"],
        *["matmul_pipelined float16 tt 4096 first", "matmul_pipelined tf32 tn 4096 first"],
        *["matmul_pipelined tf32 nn 1001x1004x4096 first", "matmul_pipelined float32 nn 4096 first"],
        *["matmul_pipelined float8_e4m3fn nt 4096 first", "matmul_pipelined float8_e4m3fn nt 1008x1008x1024 first"],
        "block_scaled_matmul float8_e4m3fn 4096x4096x4096 first",
        "block_scaled_matmul_persistent float8_e4m3fn 4096x4096x4096 first",
        "int4_matmul_persistent bfloat16 4096x4096x4096 first",
        *["int4_matmul bfloat16 4096x4096x4096 first", "int4_matmul float16 16x4096x4096 zeros first"],
        *["matmul_parts bfloat16 nn 128x128x32768 first", "matmul_parts bfloat16 nn 16x14336x4096 first"],
        *["linear_sigmoid bfloat16 4096 first", "linear_sigmoid_pipelined bfloat16 4096 first"],
        "linear_cross_entropy bfloat16 4096x32000x1024",
    ],
    "grouped": [
        *["grouped_matmul bfloat16 nn 32768x8x4096x14336 first", "grouped_matmul float32 nn 4096x8x1024x2048 first"],
        "grouped_matmul_persistent bfloat16 nn 32768x8x4096x14336",
        "grouped_matmul_persistent bfloat16 nt 512x128x2048x768 first",
        "grouped_block_scaled_matmul float8_e4m3fn 32768x8x4096x14336 first",
        "grouped_block_scaled_matmul_persistent float8_e4m3fn 32768x8x4096x14336 first",
        "grouped_matmul_grad bfloat16 nn 32768x8x4096x14336 first",
        "grouped_matmul_grad_persistent bfloat16 nn 32768x8x4096x14336 first",
    ],
    "matmul_auto": [
        *["matmul_auto bfloat16 nn 16x14336x4096", "matmul_auto bfloat16 nn 128x128x32768 first"],
        *["matmul_auto bfloat16 nn 1001x1003x1005 first", "matmul_auto bfloat16 nn 1001x1000x1003 first"],
    ],
    "conv2d": [
        *["conv2d bfloat16 14 256 256 3 1", "conv2d float32 14 128 256 3 1"],
        *["conv2d_boxes bfloat16 14 256 256 3 1 first", "conv2d_boxes tf32 14 128 256 1 1 first"],
        *["conv2d_taps float16 56 64 64 3 2 first", "conv2d_taps float32 14 128 256 3 1 first"],
    ],
    "attention": [
        *["attention bfloat16 64", "attention bfloat16 128 causal first", "attention float16 256 first"],
        *["attention float32 128 causal first", "attention_two_passes bfloat16 128 causal first"],
        *["attention_packed float16 64 first", "attention_packed bfloat16 128 causal"],
        *["attention_packed bfloat16 256 first", "attention_packed float32 128 causal first"],
        *["attention_packed bfloat16 64 causal window first", "attention_grad bfloat16 64 causal window first"],
        *["paged_attention bfloat16 128", "paged_attention_parts float8_e4m3fn 128"],
        *["attention_parts bfloat16 128 decode", "attention_float8 float8_e4m3fn 128 causal"],
        *["attention_specialized bfloat16 128", "attention_specialized bfloat16 256"],
        *[
            "attention_grad bfloat16 64 first",
            "attention_grad float32 128 causal first",
            "attention_grad float8_e4m3fn 64 causal first",
            "attention_grad_float8 float8_e4m3fn 128",
            "attention_grad_peeled bfloat16 64",
        ],
    ],
}
SM_80 = [
    *["vector_add float32", "sigmoid float32", "matmul bfloat16 nn 1024 first"],
    *["matmul_pipelined bfloat16 nn 1024 first", "matmul_auto bfloat16 nn 16x1024x1024 first"],
    *["matmul_auto bfloat16 nn 1001x1003x1005 first", "matmul_auto bfloat16 nn 128x128x32768 first"],
    *[
        "attention_parts bfloat16 256 decode first",
        "attention bfloat16 64 first",
        "lstm_persistent bfloat16 64x512 first",
    ],
]
HOPPER = {
    "gluon": [
        *["matmul_gluon bfloat16 nn 4096", "matmul_gluon float16 tt 1024 first"],
        *["matmul_gluon bfloat16 tn 16x14336x4096 first", "linear_sigmoid_gluon bfloat16 4096 first"],
        *["matmul_gluon tf32 nn 4096", "matmul_gluon tf32 nt 4096 first", "matmul_gluon tf32 tt 1024 first"],
        *["matmul_gluon bfloat16 nt 1536 first", "linear_sigmoid_gluon float16 16x8192x2048 first"],
        *["matmul_gluon float8_e4m3fn nt 4096 promoted first", "matmul_gluon float8_e4m3fn nt 4096 fast first"],
    ],
    "persistent": [
        *["matmul_persistent bfloat16 nn 4096", "matmul_persistent float16 tt 1024 first"],
        *["matmul_persistent tf32 nn 4096 first", "matmul_persistent tf32 tt 1024 first"],
    ],
    "attention": [
        *["attention_gluon bfloat16 64 long", "attention_gluon bfloat16 128", "attention_gluon float16 128 causal few"],
        *["attention_gluon bfloat16 256 causal", "attention_grad_gluon bfloat16 64 causal"],
    ],
    "split": [
        *["matmul_split float32 nn 4096", "matmul_split float32 tt 1003x1001x1009 first"],
        *["matmul_split float32 nn 512x512x16 first", "attention_split float32 128 causal"],
    ],
}


FOUR_PROGRAMS = "attention_packed float16 64"
"""Its shared memory lets four programs run on a multiprocessor."""


IN_MAKE_TEST = ["matmul_persistent float16 tt 1024 first", "attention_gluon bfloat16 64 long first"]
"""One launch of each language, Triton and Gluon: the shortest to compile."""


def launch_sets(groups: Mapping[str, Sequence[str]]) -> list[object]:
    """Parameter sets: all launches of each group."""
    return [pytest.param(group, id=name, marks=THOROUGH) for name, group in groups.items()]


def compiled(arch: int, launches: list[str]) -> list[dict[str, Any]]:
    """The records of triton_compile.py for these launches: one process, since most of its time is the import of torch.

    Triton's cache, which is kept from run to run, knows a kernel by its source, the options and the compiler.
    """
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(_cache.private("triton"))}
    command = [sys.executable, str(PROGRAM), str(arch), *launches]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert {record["launch"] for record in records} == set(launches)
    return records


def count(record: dict[str, Any], pattern: str) -> int:
    """Instructions whose opcode begins with this pattern."""
    return sum(number for name, number in record["instructions"].items() if re.match(pattern, name))


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("launches", launch_sets(PLAIN))
def test_wide_accesses_and_the_right_multiplier(launches: list[str]) -> None:
    check_accesses(90, launches)


@pytest.mark.thorough
@pytest.mark.slow(seconds=20)
def test_wide_accesses_on_sm_80() -> None:
    check_accesses(80, SM_80)


def check_accesses(arch: int, launches: list[str]) -> None:
    for record in compiled(arch, launches):
        launch = record["launch"].removesuffix(" first")
        if launch.endswith("99x101x103"):
            continue  # unaligned rows: copies of single elements, each with an address of its own
        # Its two passes keep a block of three operands in registers; such rows wait for memory.
        long = record["kernel"] == "long_add_rms_norm_kernel"
        assert record["spills"] <= (40 if long else 5), record
        if "quantize" in launch:  # a thread's codes are a quarter or half as wide as its numbers
            assert count(record, r"LDG\.E(\.\w+)*\.128") > 0, record
            assert count(record, r"STG\.E(\.\w+)*\.(64|128)|STG\.E( |$)") > 0, record
            continue
        if launch.startswith(("softmax", "rms_norm", "add_rms_norm", "layer_norm", "cumsum", "sum", "cross_entropy")):
            if record["kernel"] not in SINGLE:
                assert count(record, r"LDG(STS)?\.E(\.\w+)*\.128") > 0, record  # or by asynchronous copies
                assert count(record, r"STG\.E(\.\w+)*\.128") > 0, record
            continue
        if launch.startswith("linear_cross_entropy") and record["kernel"] != "product_kernel":
            assert count(record, r"LDG\.E(\.\w+)*\.128") > 0, record
            continue
        if launch.startswith("top_k"):  # merge_kernel reads a list of keys that is shorter than 16 bytes a thread
            assert count(record, r"LDG\.E\.(64|128)") > 0, record
            continue
        if record["kernel"] in ("add_parts_kernel", "add_paged_parts_kernel", "pad_kernel", "pad_both_kernel"):
            continue
        if record["kernel"] == "transpose_kernel" or launch.startswith(
            ("vector_add", "matrix_add", "sigmoid", "silu_mul", "rope")
        ):
            if launch.split()[1] in DTYPES or record["kernel"] == "transpose_kernel":
                assert count(record, r"LDG\.E(\.\w+)*\.128") > 0, record
                assert count(record, r"STG\.E(\.\w+)*\.128") > 0, record
            continue
        assert count(record, r"LDGSTS.*128|UTMALDG") > 0, record  # asynchronous copies of 16 bytes, or TMA
        multiplier = "FFMA" if "float32" in launch else "QGMMA" if "float8" in launch else "HGMMA"
        if launch.startswith("attention_grad float8"):  # widened to bfloat16
            multiplier = "HGMMA"
        if launch.endswith("16x14336x4096"):  # the plan may take a tile of 64 rows
            multiplier = "HG?MMA"
        if arch == 80 or launch.endswith("decode") or launch.startswith("paged"):  # no wgmma: sm_80, or few rows
            multiplier = "HMMA"
        assert count(record, multiplier) >= (100 if multiplier == "FFMA" else 1), record
        assert multiplier != "FFMA" or count(record, "HG?MMA") == 0, record
        assert record["kernel"] != "specialized_kernel" or count(record, "USETMAXREG") > 0, record  # warps have tasks
        if arch == 90 and launch == FOUR_PROGRAMS:
            assert record["shared"] <= 56 * 1024, record
        if launch.startswith("matmul") and launch.split()[2] in ("nt", "tt") and "float8" not in launch:
            # One wait in the loop and one after it: wgmmas overlap.
            assert count(record, r"WARPGROUP\.DEPBAR") <= 2, record
        if launch.startswith(("int4_matmul_persistent", "matmul_pipelined tf32 t")):
            # One wait, for all of a step: no wgmma may still read registers when the next step begins.
            assert count(record, r"WARPGROUP\.DEPBAR") == 1, record


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("launches", [pytest.param(IN_MAKE_TEST, id="some"), *launch_sets(HOPPER)])
def test_wgmma_fed_by_tma(launches: list[str]) -> None:
    for record in compiled(90, launches):
        launch = record["launch"].removesuffix(" first")
        kernel, kind = launch.split()[:2]
        # No spills, except for D=256 with a mask: a few scalars, outside of the loop over keys.
        assert count(record, "LDL|STL") <= (32 if "bfloat16 256 causal" in launch else 0), record
        if record["kernel"].startswith(("split_", "transpose_")):
            assert count(record, "HG?MMA") == 0, record
            continue
        assert count(record, "QGMMA" if "float8" in kind else "HGMMA") > 0, record
        assert count(record, r"HMMA|LDGSTS") == 0, record
        assert count(record, "UTMALDG") > 0, record
        # The forward pass of a gradient stores two numbers for each row.
        by_tma = not kernel.endswith("_split") and (kernel, record["kernel"]) != (
            "attention_grad_gluon",
            "gluon_kernel",
        )
        assert not by_tma or count(record, "UTMASTG") > 0, record
        assert not by_tma or kind == "tf32" or count(record, "STSM") > 0, record
        assert (count(record, "USETMAXREG") > 0) == kernel.endswith("gluon"), record
        if kernel == "attention_gluon":  # of each consumer: first scores; in the loop scores, products; last products
            assert count(record, r"WARPGROUP\.DEPBAR") == (12 if launch.endswith("long") else 8), record
        if "float8" in kind:  # only "promoted" adds sums outside the tensor cores
            assert (count(record, "FADD") >= 64) == launch.endswith("promoted"), record
