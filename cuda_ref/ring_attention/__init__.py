"""Attention over a split sequence in CUDA: one launch for each rank's keys, in the order in which they arrive."""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_ring_attention
from cuda_ref._runtime.shares import zigzag
from cuda_ref._runtime.symmetric import as_they_arrive

DETERMINISTIC = True


def ring_attention(
    q: Float[Tensor, "B H S D"],
    k: Float[Tensor, "B H_kv S D"],
    v: Float[Tensor, "B H_kv S D"],
    *,
    group: dist.ProcessGroup,
    causal: bool = False,
) -> Float[Tensor, "B H S D"]:
    """This rank's rows of softmax(q k^T / sqrt(D)) v over the sequence of all ranks of `group`.

    This rank's own keys come first; each launch hides the copy of the next rank's keys and values.

    Shapes: q (B, H, S, D), k and v (B, H_kv, S, D), the same shapes on all ranks, D up to 256, any strides; query head
    h reads key head h // (H // H_kv). The output is contiguous.
    Causal: the first S // 2 rows of all ranks come first, in their order, then the other rows in reverse order of the
    ranks, so that all ranks have the same number of pairs of a query and a visible key.
    Dtypes: float32, float16, bfloat16; scores, softmax and sums in float32 without tensor cores, rounded once.
    Devices: GPUs that reach each other's memory; on a CPU processes share memory.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for D above 256, more than 2^30 queries and more
    than 16 ranks; build.CudaError if a launch fails.
    Source: see ring_attention.cu.
    """
    B, H, H_kv, S, D = check_ring_attention(q, k, v)
    if D > 256 or B * H * S > 2**30:
        raise NotImplementedError(f"ring_attention: D up to 256 and B H S up to 2^30; got D={D} and {B * H * S}")
    out, ranks, half = q.new_empty(B, H, S, D), group.size(), S // 2
    if out.numel() == 0:
        return out
    q = q if q.stride(3) == 1 else q.contiguous()
    acc = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    m, l = (acc.new_empty(B, H, S) for _ in range(2))  # noqa: E741 (the field's name for it)

    def add(rank: int, keys: Tensor, values: Tensor) -> None:
        step = (rank - group.rank()) % ranks
        build.launch(
            "ring_attention/ring_attention", "ring_attention", q.device,
            q, keys, values, out, m, l, acc, B, H, H_kv, S, D, *q.stride()[:3], half,
            *zigzag(group.rank(), ranks, S), *zigzag(rank, ranks, S),
            causal, step == 0, step == ranks - 1, D**-0.5, build.DTYPES[q.dtype],
        )  # fmt: skip

    as_they_arrive([k, v], add, group, chained=True)
    return out
