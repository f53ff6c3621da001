"""The kernels for Hopper that tests run on a CPU, with its instructions emulated."""

from __future__ import annotations

import re
from pathlib import Path

from cuda_ref import build

EMULATED = Path(__file__).parent / "cuda_ref" / "emulated"
KERNELS = (
    *("attention/float8.cu", "attention/wgmma.cu", "attention/wgmma.cuh"),
    *("attention_grad/wgmma.cu", "ring_attention/wgmma.cu"),
    *("attention/hopper.cuh", "attention/statistics.cuh", "attention/heads.cuh", "attention/float8.cuh"),
    *("attention_grad/hopper.cuh", "attention_grad/float8.cu", "attention_grad/float8.cuh"),
    *("attention_grad/float8_keys.cuh", "attention_grad/float8_queries.cuh", "attention_grad/parts.cuh"),
    *("grouped_matmul/wgmma.cu", "grouped_matmul/loads.cuh", "grouped_matmul/store.cuh"),
    *("grouped_matmul_grad/wgmma.cu", "grouped_block_scaled_matmul/wgmma.cu"),
    *("int4_matmul/few.cu", "int4_matmul/few.cuh", "int4_matmul/few_wgmma.cu", "int4_matmul/wgmma.cu"),
    *("block_scaled_matmul/few.cu", "block_scaled_matmul/wgmma.cu", "block_scaled_matmul/products.cuh"),
    *("matmul/skinny.cuh", "matmul/wgmma.cu", "matmul/wgmma.cuh", "linear_cross_entropy/wgmma.cu"),
    *("matmul/wgmma_products.cuh", "hopper/epilogue.cuh", "hopper/persistent.cuh"),
)
"""Sources and headers, below cuda_ref/. Headers in EMULATED take the place of those with instructions of Hopper."""


def emulated_files(kernel: str) -> dict[str, str]:
    """The texts of a kernel for Hopper and of the headers that it includes; emulated ones where there are such."""
    emulated = {str(header.relative_to(EMULATED)): header for header in EMULATED.glob("*/*.cuh")}
    sources = {name: build.HERE / name for name in KERNELS} | emulated
    found: dict[str, str] = {}
    waiting = [kernel]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        text = re.sub("// requires: sm_90a?", "", sources[name].read_text())
        waiting += [each for each in re.findall(r'#include "([^"]+)"', text) if each in sources]
        # A source includes headers of cuda_ref unless they are beside it.
        found[name] = re.sub(
            r'#include "([^"]+)"', lambda m: f'#include "../{m[1]}"' if m[1] in sources else m[0], text
        )
    return found
