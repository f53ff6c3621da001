"""attention in JAX, PyTorch and NumPy, against float64."""

from __future__ import annotations

import pytest
import torch
from impls_common import DTYPES, Implementation, implementations, normal, ulp, uncovered
from thinning import crossed, named


@pytest.fixture(params=implementations("attention", "attention.cudnn", "attention.flash", "attention.math"))
def attention(request: pytest.FixtureRequest) -> Implementation:
    return Implementation(*request.param)


ATTENTION_SHAPES = [
    (1, 1, 1, 1, 1, 64),
    (1, 2, 1, 1, 77, 64),
    (1, 4, 2, 33, 130, 128),
    (1, 2, 1, 130, 33, 64),
    (1, 1, 1, 40, 40, 256),
    (2, 2, 2, 200, 200, 64),
]


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, sm_scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result, and sum_j p_j |v_j|, which weights errors of the probabilities."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q @ k.mT * (q.shape[3] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        i, j = torch.arange(s.shape[2])[:, None], torch.arange(s.shape[3])[None, :]
        s = s.masked_fill(j > i + s.shape[3] - s.shape[2], -torch.inf)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return p @ v, p @ v.abs()


def check_attention(
    implementation: Implementation,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    sm_scale: float | None = None,
) -> None:
    """Within one rounding of each probability and of the output, and 2^-17 for the float32 parts."""
    truth, weight = exact_attention(q, k, v, causal, sm_scale)
    rounding = 0.0 if q.dtype == torch.float32 else torch.finfo(q.dtype).eps / 2
    output = implementation(q, k, v, causal=causal, sm_scale=sm_scale).double()
    limit = (rounding + 2.0**-17) * weight + 0.5 * ulp(truth, q.dtype) + torch.finfo(q.dtype).smallest_normal
    assert ((output - truth).abs() <= limit).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "causal"),
    crossed(
        {"x".join(map(str, shape)): shape for shape in ATTENTION_SHAPES},
        named(DTYPES),
        {"full": False, "causal": True},
    ),
)
def test_attention(attention: Implementation, shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> None:
    b, h, h_kv, s_q, s_k, d = shape
    q = normal(b, h, s_q, d, dtype=dtype, seed=1)
    k, v = (normal(b, h_kv, s_k, d, dtype=dtype, seed=seed) for seed in (2, 3))
    if uncovered(attention, dtype, s_k):
        with pytest.raises(NotImplementedError, match="attention: "):
            attention(q, k, v, causal=causal)
        return
    check_attention(attention, q, k, v, causal=causal)


def test_attention_takes_a_scale_and_large_scores(attention: Implementation) -> None:
    """Scores near 1000, where an exponential without the maximum subtracted overflows."""
    q, k, v = (normal(1, 2, 70, 64, dtype=torch.bfloat16, seed=seed) for seed in (1, 2, 3))
    if uncovered(attention, torch.bfloat16, 70):
        pytest.skip("needs a GPU")
    check_attention(attention, q, k, v, causal=True, sm_scale=0.3)
    check_attention(attention, q * 8, k * 8, v, causal=False, sm_scale=0.5)


def test_attention_takes_strides(attention: Implementation) -> None:
    """(B, S, H, D) in memory, as projections leave it: the result is row-major in (B, H, S, D) all the same."""
    if uncovered(attention, torch.bfloat16, 40):
        pytest.skip("needs a GPU")
    q, k, v = (normal(2, 40, 2, 64, dtype=torch.bfloat16, seed=seed).transpose(1, 2) for seed in (1, 2, 3))
    check_attention(attention, q, k, v, causal=True)


@pytest.mark.parametrize(
    "shape", [(0, 2, 2, 5, 5, 64), (1, 2, 1, 0, 5, 64), (1, 2, 2, 5, 0, 64), (1, 0, 0, 5, 5, 64), (1, 1, 1, 5, 5, 0)]
)
def test_empty_attention_gives_zeros(attention: Implementation, shape: tuple[int, ...]) -> None:
    if uncovered(attention, torch.float16, shape[4]):
        pytest.skip("needs a GPU")
    b, h, h_kv, s_q, s_k, d = shape
    q, k = torch.ones(b, h, s_q, d, dtype=torch.float16), torch.ones(b, h_kv, s_k, d, dtype=torch.float16)
    for causal in (False, True):
        assert torch.equal(attention(q, k, k, causal=causal), torch.zeros_like(q))


def test_queries_without_keys_give_zeros(attention: Implementation) -> None:
    if uncovered(attention, torch.float16, 20):
        pytest.skip("needs a GPU")
    q, k, v = (normal(1, 2, s, 64, dtype=torch.float16, seed=s) for s in (50, 20, 20))
    assert not attention(q, k, v, causal=True)[:, :, :30].any()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), r"q must be \(B, H, S_q, D\); got \(2, 3, 4\)"),
        (((1, 2, 3, 8), (1, 2, 3, 4), (1, 2, 3, 4)), r"so k must be \(1, H_kv, S_k, 8\); got \(1, 2, 3, 4\)"),
        (((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 4, 8)), r"so v must be \(1, 2, 5, 8\); got \(1, 2, 4, 8\)"),
        (((1, 3, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)), r"H must be a multiple of H_kv; got H=3, H_kv=2"),
    ],
)
def test_attention_errors_name_the_argument(attention: Implementation, shapes: tuple, message: str) -> None:
    q, k, v = (normal(*shape, dtype=torch.float16) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        attention(q, k, v)
