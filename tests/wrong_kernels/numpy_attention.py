"""softmax(Q K^T / sqrt(D)) V in NumPy, with mistakes in the maximum."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "one_maximum_for_all": Wrong(
        "subtracts the largest of all scores, not of a row: whole rows vanish",
        "not finite",
        (1, 1, 1, 40, 40, 64),
        inputs="large_logits",
    ),
    "maximum_over_queries": Wrong(
        "the maximum is taken along the wrong axis, and does not cancel", "value", (1, 1, 1, 40, 40, 64)
    ),
}


@np.errstate(all="ignore")
def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, mistake: str) -> np.ndarray:
    s = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    axis = {"one_maximum_for_all": None, "maximum_over_queries": -2}.get(mistake, -1)
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


def make(mistake: str):
    def attention(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool = False, sm_scale: float | None = None
    ) -> np.ndarray:
        assert not causal
        assert q.shape[1] == k.shape[1]
        return attend(q, k, v, mistake)

    return attention
