"""Right kernels in torch of attention's gradient, layers, caches, and of recurrent layers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def _scores(q, k, causal, sm_scale):
    s = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        m, n = s.shape[-2:]
        s = s.masked_fill(torch.ones(m, n, dtype=torch.bool).triu(n - m + 1), -math.inf)
    return s


def _probabilities(s):
    """The softmax, with zeros for a query that sees no key."""
    return torch.where(s.isneginf().all(-1, keepdim=True), 0.0, torch.softmax(s, -1))


def attention_grad__written_out(q, k, v, do, *, causal=False, sm_scale=None):
    group, scale = q.shape[1] // max(k.shape[1], 1), q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    wide_q, g = q.double(), do.double()
    wide_k, wide_v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    p = _probabilities(_scores(wide_q, wide_k, causal, scale))
    dv, dp = p.mT @ g, g @ wide_v.mT
    delta = (p * dp).sum(-1, keepdim=True)
    ds = p * (dp - delta) * scale
    dq, dk = ds @ wide_k, ds.mT @ wide_q
    dk, dv = (x.unflatten(1, (k.shape[1], group)).sum(2) for x in (dk, dv))
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def attention_grad__autograd(q, k, v, do, *, causal=False, sm_scale=None):
    with torch.enable_grad():
        leaves = [x.float().detach().requires_grad_() for x in (q, k, v)]
        wide = [leaves[0], *(x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in leaves[1:])]
        blind = torch.arange(q.shape[2])[:, None] < (q.shape[2] - k.shape[2] if causal else 0)
        p = torch.softmax(_scores(*wide[:2], causal, sm_scale).masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
        found = torch.autograd.grad(p @ wide[2], leaves, do.float())
    return tuple(x.to(q.dtype).contiguous() for x in found)


def attention_grad__blocks_with_a_log_sum(q, k, v, do, *, causal=False, sm_scale=None):
    scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    results = [torch.zeros(x.shape, dtype=torch.float64) for x in (q, k, v)]
    group, n = q.shape[1] // max(k.shape[1], 1), k.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            wide_q, wide_k, wide_v, g = (x.double() for x in (q[b, h], k[b, h // group], v[b, h // group], do[b, h]))
            s = _scores(wide_q, wide_k, causal, scale)
            log_sum, o = torch.logsumexp(s, -1, keepdim=True), _probabilities(s) @ wide_v
            delta = (o * g).sum(-1, keepdim=True)
            for first in range(0, n, 64):
                at = slice(first, first + 64)
                p = torch.where(log_sum.isneginf(), 0.0, torch.exp(s[:, at] - log_sum))
                ds = p * (g @ wide_v[at].mT - delta) * scale
                results[0][b, h] += ds @ wide_k[at]
                results[1][b, h // group, at] += ds.mT @ wide_q
                results[2][b, h // group, at] += p.mT @ g
    return tuple(x.to(q.dtype) for x in results)


def multi_head_attention__nano_gpt(x, w_qkv, w_out, *, heads, causal=False):
    b, t, c = x.shape
    q, k, v = F.linear(x.float(), w_qkv.float()).split(c, dim=2)
    q, k, v = (each.view(b, t, heads, c // heads).transpose(1, 2) for each in (q, k, v))
    y = torch.softmax(_scores(q, k, causal, 1.0 / math.sqrt(c // heads)), -1) @ v
    return F.linear(y.transpose(1, 2).contiguous().view(b, t, c), w_out.float()).to(x.dtype)


def multi_head_attention__functional(x, w_qkv, w_out, *, heads, causal=False):
    packed = F.linear(x.double(), w_qkv.double()).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(*packed, is_causal=causal)
    return (y.transpose(1, 2).flatten(2) @ w_out.double().t()).to(x.dtype)


def multi_head_attention__head_by_head(x, w_qkv, w_out, *, heads, causal=False):
    wide, d = x.float(), x.shape[2] // heads
    total = torch.zeros(x.shape)
    for h in range(heads):
        w_q, w_k, w_v = (each[h * d : (h + 1) * d].float() for each in w_qkv.chunk(3))
        p = torch.softmax(_scores(wide @ w_q.t(), wide @ w_k.t(), causal, None), -1)
        total = total + p @ (wide @ w_v.t()) @ w_out[:, h * d : (h + 1) * d].float().t()
    return total.to(x.dtype)


def multi_head_attention__module(x, w_qkv, w_out, *, heads, causal=False):
    layer = nn.MultiheadAttention(x.shape[2], heads, bias=False, batch_first=True).requires_grad_(False)
    layer.in_proj_weight.copy_(w_qkv.float())
    layer.out_proj.weight.copy_(w_out.float())
    mask = torch.full((x.shape[1],) * 2, -math.inf).triu(1) if causal else None
    return layer(x.float(), x.float(), x.float(), attn_mask=mask, need_weights=False)[0].to(x.dtype).contiguous()


def _sequence(pages, table, length):
    """(length, H_kv, D) of one sequence in float64."""
    used = table[: -(-length // pages.shape[1])].long()
    return pages[used].flatten(0, 1)[:length].double()


def _cache(q, k_pages, v_pages, table, lengths, scale_k, scale_v):
    for b, length in enumerate(lengths.tolist()):
        k, v = _sequence(k_pages, table[b], length), _sequence(v_pages, table[b], length)
        if scale_k is not None:
            k, v = k * scale_k.double(), v * scale_v.double()
        group = q.shape[2] // max(k.shape[1], 1)
        yield b, length, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def paged_attention__sequence_by_sequence(
    q, k_pages, v_pages, table, lengths, scale_k=None, scale_v=None, *, sm_scale=None
):
    out = torch.zeros(q.shape, dtype=q.dtype)
    for b, _, k, v in _cache(q, k_pages, v_pages, table, lengths, scale_k, scale_v):
        s = _scores(q[b].double().transpose(0, 1), k.transpose(0, 1), True, sm_scale)
        out[b] = (_probabilities(s) @ v.transpose(0, 1)).transpose(0, 1).to(q.dtype)
    return out


def paged_attention__query_by_query(q, k_pages, v_pages, table, lengths, scale_k=None, scale_v=None, *, sm_scale=None):
    scale, out = q.shape[3] ** -0.5 if sm_scale is None else sm_scale, torch.zeros(q.shape, dtype=q.dtype)
    for b, length, k, v in _cache(q, k_pages, v_pages, table, lengths, scale_k, scale_v):
        for i in range(q.shape[1]):
            seen = length - q.shape[1] + i + 1
            if seen > 0:
                p = torch.softmax(torch.einsum("hd,nhd->hn", q[b, i].double() * scale, k[:seen]), -1)
                out[b, i] = torch.einsum("hn,nhd->hd", p, v[:seen]).to(q.dtype)
    return out


def paged_attention__online_over_pages(
    q, k_pages, v_pages, table, lengths, scale_k=None, scale_v=None, *, sm_scale=None
):
    scale, out = q.shape[3] ** -0.5 if sm_scale is None else sm_scale, torch.zeros(q.shape, dtype=q.dtype)
    for b, length, k, v in _cache(q, k_pages, v_pages, table, lengths, scale_k, scale_v):
        for i in range(q.shape[1]):
            seen, size = length - q.shape[1] + i + 1, k_pages.shape[1]
            m, total, o = torch.full(q.shape[2:3], -math.inf).double(), 0.0, torch.zeros(q.shape[2:]).double()
            for first in range(0, max(seen, 0), size):
                at = slice(first, min(first + size, seen))
                s = (k[at] * q[b, i].double()).sum(-1).mT * scale
                new = torch.maximum(m, s.amax(-1))
                p, shrink = torch.exp(s - new[:, None]), torch.exp(m - new)
                total, m = total * shrink + p.sum(-1), new
                o = o * shrink[:, None] + torch.einsum("hn,nhd->hd", p, v[at])
            if seen > 0:
                out[b, i] = (o / total[:, None]).to(q.dtype)
    return out


def _layers(w_ih, w_hh, bias, h0, c0, w_ih_upper):
    """The weights and states of each layer, whether the call has an axis of layers or not."""
    if w_ih_upper is None:
        return [(w_ih, w_hh, bias, h0, c0)]
    return list(zip((w_ih, *w_ih_upper), w_hh, bias, h0, c0, strict=True))


def _stacked(x, states, w_ih_upper):
    h, c = zip(*states, strict=True)
    if w_ih_upper is None:
        return h[0].to(x.dtype), c[0].to(x.dtype)
    return torch.stack(h).to(x.dtype), torch.stack(c).to(x.dtype)


def lstm__step_by_step(x, w_ih, w_hh, bias, h0, c0, w_ih_upper=None):
    y, states = x.float(), []
    for inner, outer, b, h, c in _layers(w_ih, w_hh, bias, h0, c0, w_ih_upper):
        h, c, steps = h.float(), c.float(), []
        for each in y:
            i, f, g, o = (each @ inner.float().t() + h @ outer.float().t() + b.float()).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        y = torch.stack(steps) if steps else y.new_empty(0, *h.shape)
        states.append((h, c))
    return y.to(x.dtype), *_stacked(x, states, w_ih_upper)


def lstm__projected_first(x, w_ih, w_hh, bias, h0, c0, w_ih_upper=None):
    y, states = x.double(), []
    for inner, outer, b, h, c in _layers(w_ih, w_hh, bias, h0, c0, w_ih_upper):
        h, c, t = h.double().clone(), c.double().clone(), y.shape[0]
        gates = F.linear(y, inner.double(), b.double())
        y = torch.empty(t, *h.shape, dtype=torch.float64)
        for step in range(t):
            now = gates[step].addmm(h, outer.double().t()).unflatten(1, (4, h.shape[1]))
            i, f, o = now[:, [0, 1, 3]].sigmoid().unbind(1)
            c = f * c + i * now[:, 2].tanh()
            h = o * c.tanh()
            y[step] = h
        states.append((h, c))
    return y.to(x.dtype), *_stacked(x, states, w_ih_upper)


def lstm__cell(x, w_ih, w_hh, bias, h0, c0, w_ih_upper=None):
    y, states = x.float(), []
    for inner, outer, b, h, c in _layers(w_ih, w_hh, bias, h0, c0, w_ih_upper):
        cell = nn.LSTMCell(inner.shape[1], outer.shape[1]).requires_grad_(False)
        cell.weight_ih.copy_(inner.float())
        cell.weight_hh.copy_(outer.float())
        cell.bias_ih.copy_(b.float())
        cell.bias_hh.zero_()
        h, c, steps = h.float().contiguous(), c.float().contiguous(), []
        for each in y:
            h, c = cell(each.contiguous(), (h, c))
            steps.append(h)
        y = torch.stack(steps) if steps else y.new_empty(0, *h.shape)
        states.append((h.clone(), c.clone()))
    return y.to(x.dtype), *_stacked(x, states, w_ih_upper)
