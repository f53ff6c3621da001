"""attention, its gradient and multi_head_attention: heads, batches, masks, maxima, features beyond a fixed number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mistakes import Mistake


def repeated(x: Tensor, count: int) -> Tensor:
    return x.double().repeat_interleave(count, 1)


def tiled(x: Tensor, count: int) -> Tensor:
    return x.double().repeat(1, count, 1, 1)


def hidden_keys(s: int, t: int, shift: int = 0) -> Tensor:
    return torch.arange(t) > torch.arange(s)[:, None] + t - s + shift


def weights(
    q: Tensor, k: Tensor, causal: bool, sm_scale: float | None, shift: int = 0, features: int | None = None,
    window: int = 1 << 30,
) -> Tensor:  # fmt: skip
    scores = q[..., :features].double() @ k[..., :features].mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        scores = scores.masked_fill(hidden_keys(q.shape[2], k.shape[2], shift), -torch.inf)
        scores = scores.masked_fill(~hidden_keys(q.shape[2], k.shape[2], -window), -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) if causal else torch.softmax(scores, -1)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None,
    expand: Callable[[Tensor, int], Tensor] = repeated, **how: Any,
) -> Tensor:  # fmt: skip
    k, v = (expand(x, q.shape[1] // k.shape[1]) for x in (k, v))
    return (weights(q, k, causal, sm_scale, **how) @ v).to(q.dtype).contiguous()


def with_change(change: Callable[..., tuple[Tensor, ...]], **how: Any) -> Callable[..., Tensor]:
    """attention of changed operands."""
    return lambda q, k, v, **arguments: attention(*change(q, k, v), **(arguments | how))


def after(change: Callable[[Tensor], object]) -> Callable[..., Tensor]:
    """attention whose result is changed in place."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, **arguments: Any) -> Tensor:
        o = attention(q, k, v, **arguments)
        change(o)
        return o

    return kernel


def as_contiguous(x: Tensor) -> Tensor:
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset())


def maximum_from_0(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, sm_scale: float | None = None) -> Tensor:
    k, v = (repeated(x, q.shape[1] // k.shape[1]) for x in (k, v))
    s = (q.double() @ k.mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)).float()
    e = torch.exp(s - s.amax(-1, keepdim=True).clamp(min=0.0))
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e @ v.float() / total, 0.0).to(q.dtype).contiguous()


def online(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, sm_scale: float | None = None) -> Tensor:
    """Blocks of 64 keys; a first block that is hidden as a whole gives -inf - -inf."""
    (b, h, s, d), t = q.shape, k.shape[2]
    k, v = (repeated(x, h // k.shape[1]).float() for x in (k, v))
    scores = q.float() @ k.mT * (d**-0.5 if sm_scale is None else sm_scale)
    m, total, o = torch.full((b, h, s, 1), -torch.inf), torch.zeros(b, h, s, 1), torch.zeros(b, h, s, d)
    for i in range(0, t, 64):
        block = scores[..., i : i + 64]
        n = torch.maximum(m, block.amax(-1, keepdim=True))
        a, p = torch.exp(m - n), torch.exp(block - n)
        total, o, m = total * a + p.sum(-1, keepdim=True), o * a + p @ v[:, :, i : i + 64], n
    return (o / total).to(q.dtype).contiguous()


def some_scores_minus_infinity(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The first 70 keys score -inf for every second query; the first feature changes no other score."""
    q, k = q.clone(), k.clone()
    q[..., 0], k[..., 0] = 0.0, 0.0
    q[:, :, ::2, 0], k[:, :, :70, 0] = 3e38, -3e38
    return q, k, v


def far_below_zero(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Scores of every second query are far below 0."""
    q, k = q.clone(), k.clone()
    q[:, :, ::2, 0], k[..., 0] = -64.0, 64.0
    return q, k, v


def gradients(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool = False, sm_scale: float | None = None,
    expand: Callable[[Tensor, int], Tensor] = repeated, scale: float | None = None, features: int | None = None,
    shift: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    (b, h, _, d), h_kv, t = q.shape, k.shape[1], k.shape[2]
    count = h // h_kv
    scale = scale or (d**-0.5 if sm_scale is None else sm_scale)
    Q, DO, (K, V) = q.double(), do.double(), (expand(x, count) for x in (k, v))
    p = weights(Q, K, causal, scale, shift, features)
    dp = DO @ V.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
    dk, dv = ds.mT @ Q, p.mT @ DO
    if expand is tiled:
        dk, dv = (x.reshape(b, count, h_kv, t, d).sum(1) for x in (dk, dv))
    else:
        dk, dv = (x.reshape(b, h_kv, count, t, d).sum(2) for x in (dk, dv))
    return tuple(x.to(q.dtype).contiguous() for x in (ds @ K, dk, dv))


def dq_features(q: Tensor, k: Tensor, v: Tensor, do: Tensor, **arguments: Any) -> tuple[Tensor, ...]:
    dq, dk, dv = gradients(q, k, v, do, **arguments)
    dq[..., 80:] = 0
    return dq, dk, dv


def first_batch_of_gradients(q: Tensor, k: Tensor, v: Tensor, do: Tensor, **arguments: Any) -> tuple[Tensor, ...]:
    return tuple(x[:1].expand(x.shape).contiguous() for x in gradients(q, k, v, do, **arguments))


def mha(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False, window: int = 1 << 30) -> Tensor:
    b, s, e = x.shape
    q, k, v = (
        each.reshape(b, s, heads, e // heads).transpose(1, 2) for each in (x.double() @ w_qkv.double().T).chunk(3, 2)
    )
    scores = q @ k.mT * (e // heads) ** -0.5
    far = torch.arange(s)[:, None] - torch.arange(s) >= window
    hidden = hidden_keys(s, s) | far if causal else far
    o = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v
    return (o.transpose(1, 2).reshape(b, s, e) @ w_out.double().T).to(x.dtype)


GROUPS, WIDE, LAST = (2, 4, 2, 17, 40, 64), (1, 2, 1, 17, 40, 128), (1, 2, 1, 1, 77, 64)
KERNELS = [
    Mistake("key heads tiled", "attention", GROUPS, lambda q, k, v, **how: attention(q, k, v, **how, expand=tiled),
            r"query head h read key head h % H_kv"),
    Mistake("key head 0", "attention", GROUPS, with_change(lambda q, k, v: (q, k[:, :1], v[:, :1])),
            r"query head h read key head 0"),
    Mistake("v of head 0", "attention", GROUPS, with_change(lambda q, k, v: (q, k, v[:, :1].expand(v.shape))),
            r"v at H_kv = 0 was read for every H_kv"),
    Mistake("one batch entry", "attention", GROUPS,
            with_change(lambda q, k, v: tuple(x[:1].expand(x.shape) for x in (q, k, v))),
            r"q, k and v at B = 0 were read for every B"),
    Mistake("keys of batch entry 0", "attention", GROUPS,
            with_change(lambda q, k, v: (q, k[:1].expand(k.shape), v)), r"k at B = 0 was read for every B"),
    Mistake("other batch entries zero", "attention", GROUPS, after(lambda o: o[1:].zero_()),
            r"^as if \[1:2, 0:4, 0:17, 0:64\] was left 0"),
    Mistake("a head zero", "attention", (1, 2, 1, 100, 100, 64), after(lambda o: o[:, 1].zero_()),
            r"^as if \[0:1, 1:2, 0:100, 0:64\] was left 0", options={"causal": True}),
    Mistake("a head of several zero", "attention", GROUPS, after(lambda o: o[:, 2].zero_()),
            r"^as if .* was left 0"),
    Mistake("features after 64", "attention", WIDE, lambda q, k, v, **how: attention(q, k, v, **how, features=64),
            r"q was read as 0 in the last 64 of D"),
    Mistake("features of the result after 64", "attention", WIDE, after(lambda o: o[..., 64:].zero_()),
            r"0:17, 64:128\] was left 0"),
    Mistake("scale of 1/8", "attention", WIDE, lambda q, k, v, *, causal: attention(q, k, v, sm_scale=0.125),
            r"scale|multiplied by sqrt|1/8|0.125"),
    Mistake("sm_scale ignored", "attention", GROUPS, lambda q, k, v, **_: attention(q, k, v),
            r"sm_scale was 1 / sqrt\(D\)", inputs="sm_scale"),
    Mistake("causal ignored", "attention", GROUPS, lambda q, k, v, **_: attention(q, k, v), r"there was no mask",
            options={"causal": True}),
    Mistake("mask one too far", "attention", GROUPS, lambda q, k, v, **how: attention(q, k, v, **how, shift=1),
            r"a query saw the key after its own", options={"causal": True}),
    Mistake("maximum from 0", "attention", GROUPS, maximum_from_0, r"the maximum began at 0", prepare=far_below_zero),
    Mistake("first block minus infinity", "attention", (1, 4, 2, 40, 150, 64), online, r"began with a block of -inf",
            prepare=some_scores_minus_infinity),
    Mistake("first block minus infinity in some heads", "attention", (1, 3, 3, 7, 600, 64), online,
            r"began with a block of -inf", inputs="minus_infinity_first"),
    Mistake("last key", "attention", LAST, with_change(lambda q, k, v: (q, k[:, :, :-1], v[:, :, :-1])),
            r"the last key was left out"),
    Mistake("q read as contiguous", "attention", GROUPS, with_change(lambda q, k, v: (as_contiguous(q), k, v)),
            r"^as if q was read as if it was contiguous", inputs="transposed"),
    Mistake("v read as contiguous", "attention", GROUPS, with_change(lambda q, k, v: (q, k, as_contiguous(v))),
            r"^as if v was read as if it was contiguous", inputs="transposed"),
    Mistake("key heads tiled", "attention_grad", (2, 4, 2, 33, 40, 64),
            lambda *x, **how: gradients(*x, **how, expand=tiled), r"query head h read key head h % H_kv"),
    Mistake("dq after 80 features", "attention_grad", (1, 2, 1, 33, 40, 128), dq_features,
            r"^as if dq\[0:1, 0:2, 0:33, 80:128\] was left 0"),
    Mistake("features after 64", "attention_grad", (1, 2, 1, 33, 40, 128),
            lambda *x, **how: gradients(*x, **how, features=64), r"the last 64 of D .*scores"),
    Mistake("scale of 1/8", "attention_grad", (1, 2, 1, 33, 40, 128),
            lambda *x, **how: gradients(*x, **how, scale=0.125), r"0\.125|scale"),
    Mistake("one batch entry", "attention_grad", (2, 2, 1, 33, 40, 64), first_batch_of_gradients,
            r"q, k, v and do at B = 0 were read for every B"),
    Mistake("do of batch entry 0", "attention_grad", (2, 2, 1, 33, 40, 64),
            lambda q, k, v, do, **how: gradients(q, k, v, do[:1].expand(do.shape), **how),
            r"do at B = 0 was read for every B"),
    Mistake("mask one too far", "attention_grad", (1, 2, 1, 33, 40, 64),
            lambda *x, **how: gradients(*x, **how, shift=1), r"a query saw the key after its own",
            options={"causal": True}),
    Mistake("window of 64 keys", "multi_head_attention", (1, 100, 128, 2), lambda *x, **how: mha(*x, **how, window=64),
            r"positions 64 and more places away were left out", options={"causal": True}),
    Mistake("window of 64 keys", "attention", (1, 2, 1, 100, 130, 64),
            lambda *x, **how: attention(*x, **how, window=64), r"keys 64 and more places away were left out",
            options={"causal": True}),
    Mistake("NaN replaced by 0", "multi_head_attention", (1, 33, 128, 2),
            lambda x, *w, **how: mha(x.nan_to_num(0.0), *w, **how), r"NaN was (taken for 0|lost)", inputs="nan"),
    Mistake("causal ignored", "multi_head_attention", (2, 37, 128, 2),
            lambda *x, heads, causal: mha(*x, heads=heads), r"positions saw later ones", options={"causal": True}),
]  # fmt: skip
