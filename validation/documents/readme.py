"""README.md: the table of speeds."""

from __future__ import annotations

import json
from pathlib import Path

from suite.results.csv_file import read_rows
from suite.results.groups import Standing, standing
from suite.results.render import pipe_table
from suite.results.render.labels import short_case, short_dtype
from suite.results.row import Row
from validation.documents import ROOT
from validation.documents.rows import H100, H200
from validation.documents.tables import with_marked

PAGE = ROOT / "README.md"
CASES = (
    ("vector_add", "N=268435456", "bfloat16", "ieee"),
    ("matrix_add", "M=16384,N=16384", "bfloat16", "ieee"),
    ("sigmoid", "N=268435456", "bfloat16", "ieee"),
    ("sum", "M=16384,N=16384", "bfloat16", "ieee"),
    ("softmax", "M=32768,N=4096", "bfloat16", "ieee"),
    ("rms_norm", "M=32768,N=4096", "bfloat16", "ieee"),
    ("layer_norm", "M=32768,N=4096", "bfloat16", "ieee"),
    ("matmul", "M=4096,N=4096,K=4096", "bfloat16", "ieee"),
    ("linear_sigmoid", "M=4096,N=4096,K=4096", "bfloat16", "ieee"),
    ("linear_sigmoid_grad", "M=4096,N=4096,K=4096", "bfloat16", "ieee"),
    ("conv2d", "N=256,H=56,W=56,C=64,K=64,R=3,S=3,stride=1,padding=1", "bfloat16", "ieee"),
    ("attention", "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128", "bfloat16", "ieee"),
    ("attention_grad", "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128", "bfloat16", "ieee"),
    ("multi_head_attention", "B=4,S=4096,E=2048,H=16", "bfloat16", "ieee"),
    ("lstm", "T=512,B=1,I=1024,H=1024", "bfloat16", "ieee"),
)
"""Cases of the first table: one for each operation with results on an H200, in the order of `list`."""
CASES_H100 = (
    ("silu_mul", "M=8192,N=14336", "bfloat16", "ieee"),
    ("silu_mul_grad", "M=8192,N=14336", "bfloat16", "ieee"),
    ("rope", "B=4,S=4096,H=32,H_kv=8,D=128", "bfloat16", "ieee"),
    ("add_rms_norm", "M=16384,N=4096", "bfloat16", "ieee"),
    ("rms_norm_grad", "M=16384,N=4096", "bfloat16", "ieee"),
    ("layer_norm_grad", "M=16384,N=4096", "bfloat16", "ieee"),
    ("block_scaled_matmul", "M=4096,N=7168,K=16384", "float8_e4m3fn", "promoted"),
    ("int4_matmul", "M=1,N=28672,K=8192", "bfloat16", "ieee"),
    ("max_pool2d", "N=64,H=224,W=224,C=64,R=2,S=2,stride=2,padding=0", "bfloat16", "ieee"),
    ("max_pool2d_grad", "N=64,H=224,W=224,C=64,R=2,S=2,stride=2,padding=0", "bfloat16", "ieee"),
    ("grouped_matmul", "T=32768,E=8,K=4096,N=14336", "bfloat16", "ieee"),
    ("grouped_matmul_grad", "T=32768,E=8,K=4096,N=14336", "bfloat16", "ieee"),
    ("grouped_block_scaled_matmul", "T=32768,E=8,K=4096,N=14336", "float8_e4m3fn", "promoted"),
    ("paged_attention", "B=64,H=32,H_kv=8,S_q=1,S_k=8192,D=128,page=16", "bfloat16", "ieee"),
    ("cross_entropy", "T=16384,V=32000", "bfloat16", "ieee"),
    ("linear_cross_entropy", "T=4096,V=128256,H=4096", "bfloat16", "ieee"),
    ("adam_step", "N=16777216,adamw", "float32", "ieee"),
    ("quantize", "M=16384,N=4096,group=128", "bfloat16", "ieee"),
    ("silu_mul_quantize", "M=8192,N=14336,group=128", "bfloat16", "ieee"),
    ("rms_norm_quantize", "M=16384,N=4096,group=128", "bfloat16", "ieee"),
    ("cumsum", "M=16384,N=4096", "bfloat16", "ieee"),
    ("top_k", "M=64,N=128256,K=50", "bfloat16", "ieee"),
)
"""Cases of the second table."""
FRAMEWORKS = ("triton", "jax", "cuda")
HEADS = ["case", "best vendor", "its rate", "of limit", "Triton", "JAX", "CUDA"]
NUMERIC = {"its rate", "of limit", "Triton", "JAX", "CUDA"}


def best(among: Standing, framework: str) -> str:
    """Format `vs_best` of the framework's fastest implementation, and its variant, as `1.012 (persistent)`."""
    fastest = among.best(
        lambda row: row.implementation.partition("/")[0] == framework and not row.peer and row.vs_best is not None
    )
    if fastest is None:
        return ""
    variant = fastest.implementation.partition("/")[2]
    return f"{fastest.vs_best:.3f}" + (f" ({variant})" if variant else "")


def tflops(row: Row) -> str:
    """Format the rate with three digits: `3`, `789`, `1,330`."""
    return f"{row.tflops:.3g}" if row.tflops < 1000 else f"{row.tflops:,.0f}"


def line(path: Path, operation: str, case: str, dtype: str, precision: str) -> list[str]:
    """Return the cells of one case of the table at `path`."""
    every = read_rows(path)
    among = standing([row for row in every if row.case_key == (operation, case, dtype, precision)])
    vendor = among.vendor
    if vendor is None:
        raise SystemExit(f"{operation} {case} {dtype}: the best vendor is not certain: measure again")
    rate = f"{vendor.gb_per_s / 1000:.2f} TB/s" if vendor.limit.startswith("memory") else f"{tflops(vendor)} TFLOP/s"
    return [
        f"{operation} {short_case(case).replace(',', ' ')} {short_dtype(vendor)}",
        vendor.implementation,
        rate,
        f"{vendor.of_limit:.2f}" if vendor.of_limit >= 0.1 else f"{vendor.of_limit:.2g}",
        *(best(among, framework) for framework in FRAMEWORKS),
    ]


def table() -> str:
    """Format the table and the sentences under it as Markdown."""
    record = json.loads((H200 / "environment.json").read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {record['packages'][name].partition('+')[0]}" for name in ("torch", "triton", "jax"))
    lines = [line(H200 / f"{case[0]}.csv", *case) for case in CASES if (H200 / f"{case[0]}.csv").exists()]
    newer = [line(H100 / "operations" / case[0] / f"{case[0]}.csv", *case) for case in CASES_H100]
    return (
        f"{pipe_table(HEADS, lines, right=NUMERIC)}\n\n"
        f"{record['device']['name']}, driver {record['device']['driver']}, {packages}; cold L2 cache,\n"
        f"random normal inputs; the commands are in [environment.json](results/nvidia-h200/environment.json).\n"
        "The last three columns divide the best vendor implementation's time by that of the framework's best one:\n"
        "above 1 is faster than the vendor. `of limit` is the share of the datasheet's limit.\n"
        "All tables: [results/nvidia-h200](results/nvidia-h200).\n\n"
        f"{pipe_table(HEADS, newer, right=NUMERIC)}\n\n"
        "This second table has newer operations on an NVIDIA H100 80GB HBM3. Their tables and commands are in\n"
        "[results/nvidia-h100-80gb-hbm3/operations](results/nvidia-h100-80gb-hbm3/operations).\n"
        "Twelve operations of the first table were also measured on that GPU, in some of their cases:\n"
        "[results/nvidia-h100-80gb-hbm3](results/nvidia-h100-80gb-hbm3).\n"
        "Five operations over two and four of these GPUs: [several GPUs](docs/several_gpus.md#results).\n"
    )


def filled(text: str) -> str:
    """Return the README with the table."""
    return with_marked(text, table())
