"""softmax(Q K^T / sqrt(D)) V in CUDA: see cuda_attention.cu."""

from pathlib import Path

from torch import Tensor

from cuda_ref import build
from wrong_kernels import Wrong

MISTAKES = {
    "causal_off_by_one": Wrong(
        "a query does not see its own key", "value", (1, 2, 2, 33, 70, 64), options={"causal": True}
    ),
    "scaled_twice": Wrong("Q is scaled, and the scores again", "value", (1, 2, 2, 33, 40, 64)),
    "maximum_from_zero": Wrong(
        "the running maximum begins at 0: where all scores are far below, 0 / 0",
        "not finite",
        (1, 2, 2, 40, 1, 64),
        inputs="large_logits",
    ),
    "kv_head_by_remainder": Wrong("query head h reads key head h % H_kv", "value", (1, 4, 2, 33, 40, 64)),
    "sum_not_rescaled": Wrong(
        "when the maximum grows, the sum of weights is not rescaled", "value", (1, 2, 2, 33, 40, 64)
    ),
}


def make(mistake: str):
    code = ["", *MISTAKES].index(mistake)

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> Tensor:
        B, H, S_q, D = q.shape
        _, H_kv, S_k, _ = k.shape
        out = q.new_empty(q.shape)
        build.launch(
            Path(__file__).with_suffix(".cu"), "attention", q.device,
            q, k, v, out, B * H, H, H_kv, S_q, S_k, causal, float(sm_scale or D**-0.5), code,
        )  # fmt: skip
        return out

    return attention
