"""Attention of a few queries in CUDA on tensor cores: the keys are divided among blocks (split-K over keys). A second
kernel adds the parts."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import attend, copied, readable, strides

DETERMINISTIC = True

MOST_QUERIES = 16
"""Most queries of a call. A block computes all of them together."""
STEP = 64
"""Keys per step of a block's warps together; divides the keys of a part."""
MOST_PARTS = 1024  # as in decode.cu
STEP_US = 0.5
"""Least time of a step (H200)."""
START_US = 1.5
"""Time of a block besides its steps (H200)."""
ADDING_US = 3.0
"""Time of the second kernel (H200)."""
BYTES_PER_US = 4.4e6
"""Memory bandwidth in bytes per microsecond (H200)."""


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes: S_q up to 16; otherwise shapes, masks, dtypes and errors of cuda_ref.attention._hopper.attend.
    The keys of a head are divided among blocks; all query heads of a key head read it once.
    Devices: CUDA, compute capability 8.0 or newer; on the CPU the same kernels are emulated, only to check results.
    Source: see decode.cu.
    """
    if q.dim() == 4 and q.shape[2] > MOST_QUERIES:
        raise NotImplementedError(f"attention: S_q must be at most {MOST_QUERIES}; got {q.shape[2]}")
    return attend(decode, q, k, v, causal, sm_scale)


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The number of parts of the keys, such as `decode parts=3`; empty without queries or keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    return f"decode parts={division(q, k)[0]}{copied(q, k, v)}"


def decode(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, scale_log2: float) -> None:
    """Launches the kernels for checked arguments, none of them empty; out is contiguous."""
    q, k, v = (readable(x) for x in (q, k, v))
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    parts, part = division(q, k)
    sums = statistics = out
    if parts > 1:
        sums = q.new_empty(B * H * S_q, parts, D, dtype=torch.float32)
        statistics = q.new_empty(B * H * S_q, parts, 2, dtype=torch.float32)
    build.launch(
        "attention/decode", "attention_decode", q.device,
        q, k, v, out, sums, statistics, B, H, H_kv, S_q, S_k, D, *strides(q), *strides(k), *strides(v), part, parts,
        causal and S_q > 1, scale_log2, build.DTYPES[q.dtype],
    )  # fmt: skip


def division(q: Tensor, k: Tensor) -> tuple[int, int]:
    """The number of parts and the keys per part, from shapes, dtype and device alone. On a CPU up to three parts."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if not q.is_cuda:
        part = cdiv(S_k, 3 * STEP) * STEP
        return cdiv(S_k, part), part
    blocks = B * H_kv * cdiv(S_q * (H // H_kv), MOST_QUERIES)
    return parts_of(blocks, S_k, 4 * STEP * D, multiprocessors(q.device), resident(2 * D))


def parts_of(blocks: int, S_k: int, step_bytes: int, processors: int, resident: int) -> tuple[int, int]:
    """The number of parts of the keys, and the keys per part, a multiple of STEP. It depends on sizes alone.

    Minimizes the predicted time of the multiprocessor with the most blocks. It has its share of the memory bandwidth,
    or less if its blocks, `resident` at a time, wait for their keys.

    Args:
        blocks: blocks without a division.
        S_k: keys.
        step_bytes: bytes of STEP keys and values.
        processors: multiprocessors of the device.
        resident: blocks that a multiprocessor runs at a time.
    """
    steps = cdiv(S_k, STEP)

    def predicted_us(parts: int) -> float:
        most, each = cdiv(blocks * parts, processors), cdiv(steps, parts)
        rounds = cdiv(most, resident)
        loading = max(most * each * step_bytes * processors / BYTES_PER_US, rounds * each * STEP_US)
        return loading + rounds * START_US + (ADDING_US if parts > 1 else 0.0)

    parts = min(range(1, max(1, min(steps, resident * processors, MOST_PARTS)) + 1), key=predicted_us)
    each = cdiv(steps, parts)
    return cdiv(steps, each), each * STEP


def resident(row_bytes: int) -> int:
    """Blocks that a multiprocessor runs at a time, by the bytes of a key, as in decoding.cuh."""
    return 1 if row_bytes == 512 else 2


def cdiv(size: int, by: int) -> int:
    """size / by, rounded up."""
    return -(-size // by)
