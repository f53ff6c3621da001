"""Attention of a few queries in CUDA: how the keys are divided among blocks, and the launch."""

import torch
from torch import Tensor

from cuda_ref import build

DECODING = 16
"""Most queries of a call that reads every key once."""
STEP = 64
"""Keys that the warps of a block take together; a part has a multiple of it."""
MOST_PARTS = 1024  # as in _decode.cu
RESIDENT = {64: 2, 128: 2, 256: 1}  # blocks of a multiprocessor by D, as in _decode.cu
STEP_US, START_US, ADDING_US, BYTES_PER_US = 0.5, 1.5, 3.0, 4.4e6
"""Least time of a step; of a block beyond its steps; of the second kernel; bytes that memory delivers in a microsecond.
Of an H200."""


def count(size: int, by: int) -> int:
    return -(-size // by)


def parts_of(blocks: int, S_k: int, step_bytes: int, processors: int, resident: int) -> tuple[int, int]:
    """How many parts the keys are divided into, and the keys of a part, a multiple of STEP; by sizes alone.

    The least predicted time of the multiprocessor with the most blocks. It has its share of the memory's rate, or less
    if its blocks, `resident` at a time, wait for their keys. `blocks`: without a division. step_bytes: of STEP keys and
    values.
    """
    steps = count(S_k, STEP)

    def predicted_us(parts: int) -> float:
        most, each = count(blocks * parts, processors), count(steps, parts)
        rounds = count(most, resident)
        loading = max(most * each * step_bytes * processors / BYTES_PER_US, rounds * each * STEP_US)
        return loading + rounds * START_US + (ADDING_US if parts > 1 else 0.0)

    parts = min(range(1, max(1, min(steps, resident * processors, MOST_PARTS)) + 1), key=predicted_us)
    each = count(steps, parts)
    return count(steps, each), each * STEP


def decode(q: Tensor, k: Tensor, v: Tensor, out: Tensor, strides: list[int], causal: bool, scale: float) -> None:
    """Launches attention of at most DECODING queries: float16 or bfloat16, D 64, 128 or 256; out is contiguous.

    strides: of q, k and v, three each, for rows at multiples of 16 bytes. scale: of the scores, with log2(e). What is
    launched depends on shapes, dtype and device alone. On a CPU, where it is emulated, there are up to three parts.
    """
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1:3]
    blocks = B * H_kv * count(S_q * (H // H_kv), 16)
    if q.is_cuda:
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        parts, part = parts_of(blocks, S_k, 4 * STEP * D, processors, RESIDENT[D])
    else:
        part = count(S_k, 3 * STEP) * STEP
        parts = count(S_k, part)
    sums = statistics = out
    if parts > 1:
        sums = q.new_empty(B * H * S_q, parts, D, dtype=torch.float32)
        statistics = q.new_empty(B * H * S_q, parts, 2, dtype=torch.float32)
    build.launch(
        "attention/_decode", "attention_decode", q.device,
        q, k, v, out, sums, statistics, B, H, H_kv, S_q, S_k, D, *strides, part, parts, causal and S_q > 1, scale,
        build.DTYPES[q.dtype],
    )  # fmt: skip
