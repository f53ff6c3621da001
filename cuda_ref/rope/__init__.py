"""The rotary position embedding of queries and keys in CUDA, the plain kernel: one thread rotates one pair."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_rope
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True

Queries = Float[Tensor, "B S H D"]
Keys = Float[Tensor, "B S H_kv D"]
Angles = Float[Tensor, "S D/2"]


def contiguous_rows(x: Tensor) -> Tensor:
    """x, or a copy of it if its last dimension has gaps."""
    return x if x.stride(-1) == 1 else x.contiguous()


@kept
def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k.

    Shapes: q (B, S, H, D), k (B, S, H_kv, D), cos and sin (S, D/2). The outputs are contiguous.
    Strides: any of B, S and H. torch first copies q and k if features have gaps, and strided cos and sin.
    Options: a pair is i and i + D/2 (`halves`), or 2i and 2i + 1 (`pairs`). `inverse` rotates back.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: threads beyond the last pair do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and layouts; build.CudaError if the launch fails.
    """
    B, S, H, H_kv, D = check_rope(q, k, cos, sin, layout=layout)
    q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
    if q_out.numel() + k_out.numel() > 0:
        q, k = contiguous_rows(q), contiguous_rows(k)
        build.launch(
            "rope/rope", "rope", q.device,
            q, k, cos.contiguous(), sin.contiguous(), q_out, k_out, B, S, H, H_kv, D, *q.stride()[:3], *k.stride()[:3],
            layout == "pairs", inverse, build.DTYPES[q.dtype],
        )  # fmt: skip
    return q_out, k_out
