"""Right kernels in Triton, as tutorials and libraries write them: masks, blocks, strides as arguments, loops."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Elementwise


@triton.jit
def _add(a, b, out, N, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(out + offs, tl.load(a + offs, mask=mask) + tl.load(b + offs, mask=mask), mask=mask)


def vector_add__tutorial(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    if out.numel():
        _add[lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)](a, b, out, out.numel(), BLOCK=1024)
    return out


@triton.jit
def _add_strided(a, b, out, N, stride_a, stride_b, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, N, tl.num_programs(0) * BLOCK):
        offs = (start + tl.arange(0, BLOCK)).to(tl.int64)
        mask = offs < N
        value = tl.load(a + offs * stride_a, mask=mask) + tl.load(b + offs * stride_b, mask=mask)
        tl.store(out + offs, value, mask=mask)


def vector_add__grid_stride(a, b):
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    if out.numel():
        _add_strided[(4,)](a, b, out, out.numel(), a.stride(0), b.stride(0), BLOCK=512)
    return out


@triton.jit
def _sigmoid(x, out, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs, mask=offs < N, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(value))  # never overflows
    y = tl.where(value >= 0.0, 1.0, small) / (1.0 + small)
    tl.store(out + offs, y, mask=offs < N)


def sigmoid__stable(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        _sigmoid[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# Rows


@triton.jit
def _softmax(x, out, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * N + cols, numerator / tl.sum(numerator, axis=0), mask=cols < N)


def softmax__tutorial(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        _softmax[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@triton.jit
def _softmax_online(x, out, N, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = (start + tl.arange(0, BLOCK)).to(tl.int64)
        value = tl.load(x + row * stride_m + cols * stride_n, mask=cols < N, other=-float("inf")).to(tl.float32)
        before = highest
        highest = tl.maximum(highest, tl.max(value, axis=0), propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(highest == -float("inf"), 0.0, highest)
        total = total * tl.exp(before - shift) + tl.sum(tl.exp(value - shift), axis=0)
    for start in range(0, N, BLOCK):
        cols = (start + tl.arange(0, BLOCK)).to(tl.int64)
        value = tl.load(x + row * stride_m + cols * stride_n, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(out + row * N + cols, tl.exp(value - highest) / total, mask=cols < N)


def softmax__online(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        _softmax_online[(x.shape[0],)](x, out, x.shape[1], *x.stride(), BLOCK=8192)
    return out


@triton.jit
def _rms_norm(x, residual, weight, out, kept, N, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    value = tl.load(x + row * N + cols, mask=mask, other=0.0)
    if ADD:
        value = (value.to(tl.float32) + tl.load(residual + row * N + cols, mask=mask, other=0.0).to(tl.float32)).to(
            out.dtype.element_ty
        )
        tl.store(kept + row * N + cols, value, mask=mask)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / N + eps)
    y = wide * scale * tl.load(weight + cols, mask=mask).to(tl.float32)
    tl.store(out + row * N + cols, y, mask=mask)


def rms_norm__one_block(x, weight, *, eps):
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        block = triton.next_power_of_2(x.shape[1])
        _rms_norm[(x.shape[0],)](x, x, weight, out, out, x.shape[1], eps, ADD=False, BLOCK=block)
    return out


def add_rms_norm__fused(x, residual, weight, *, eps):
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    out, kept = torch.empty_like(x), torch.empty_like(x)
    if out.numel():
        block = triton.next_power_of_2(x.shape[1])
        _rms_norm[(x.shape[0],)](x, residual, weight, out, kept, x.shape[1], eps, ADD=True, BLOCK=block)
    return out, kept


# Products


@triton.jit
def _matmul(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = GROUP_M * tiles_n
    first_m = pid // group * GROUP_M
    size_m = min(tiles_m - first_m, GROUP_M)
    tile_m, tile_n = first_m + pid % group % size_m, pid % group // size_m
    offs_m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x = tl.load(
            a + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0,
        )  # fmt: skip
        y = tl.load(
            b + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0,
        )  # fmt: skip
        acc += tl.dot(x.to(tl.float32), y.to(tl.float32), input_precision="ieee")
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


def matmul__grouped(a, b, *, precision="ieee"):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if c.numel():
        tiles = triton.cdiv(M, 32) * triton.cdiv(N, 64)
        blocks = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 4}
        _matmul[(tiles,)](a, b, c, M, N, K, *a.stride(), *b.stride(), **blocks)
    return c


# Attention


@triton.jit
def _attention(
    q, k, v, out, S_q, S_k, D, groups, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m, offs_d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    keys = head // groups * S_k * D
    rows = (offs_m[:, None] < S_q) & (offs_d[None, :] < D)
    query = tl.load(q + head * S_q * D + offs_m[:, None] * D + offs_d[None, :], mask=rows, other=0.0).to(tl.float32)
    m_i = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(0, S_k, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        at = keys + offs_n[:, None] * D + offs_d[None, :]
        there = (offs_n[:, None] < S_k) & (offs_d[None, :] < D)
        key = tl.load(k + at, mask=there, other=0.0).to(tl.float32)
        value = tl.load(v + at, mask=there, other=0.0).to(tl.float32)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        seen = (offs_n[None, :] < S_k) & (offs_m[:, None] < S_q)
        if CAUSAL:
            seen = seen & (offs_n[None, :] <= offs_m[:, None] + S_k - S_q)
        score = tl.where(seen, score, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(score, axis=1))
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        alpha, p = tl.exp(m_i - m_safe), tl.exp(score - m_safe[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, value, input_precision="ieee")
        m_i = m_new
    acc = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    tl.store(out + head * S_q * D + offs_m[:, None] * D + offs_d[None, :], acc, mask=rows)


def attention__flash(q, k, v, *, causal=False, sm_scale=None):
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    out = torch.empty_like(q)
    if out.numel():
        scale = D**-0.5 if sm_scale is None else sm_scale
        blocks = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_D": triton.next_power_of_2(D), "CAUSAL": causal}
        _attention[(triton.cdiv(S_q, 32), B * H)](q, k, v, out, S_q, S_k, D, H // H_kv, scale, **blocks)
    return out


# Rotations


@triton.jit
def _rope(x, cos, sin, out, S, H, HALF, sign, PAIRS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    token, i = row // H % S, tl.arange(0, BLOCK)
    mask = i < HALF
    first, second = (2 * i, 2 * i + 1) if PAIRS else (i, i + HALF)
    c = tl.load(cos + token * HALF + i, mask=mask).to(tl.float32)
    s = tl.load(sin + token * HALF + i, mask=mask).to(tl.float32) * sign
    a = tl.load(x + row * 2 * HALF + first, mask=mask).to(tl.float32)
    b = tl.load(x + row * 2 * HALF + second, mask=mask).to(tl.float32)
    tl.store(out + row * 2 * HALF + first, a * c - b * s, mask=mask)
    tl.store(out + row * 2 * HALF + second, b * c + a * s, mask=mask)


def rope__rows(q, k, cos, sin, *, layout="halves", inverse=False):
    cos, sin = cos.contiguous(), sin.contiguous()
    found = []
    for x in (q.contiguous(), k.contiguous()):
        B, S, H, D = x.shape
        out = torch.empty_like(x)
        if out.numel():
            kind = {"PAIRS": layout == "pairs", "BLOCK": triton.next_power_of_2(D // 2)}
            _rope[(B * S * H,)](x, cos, sin, out, S, H, D // 2, -1.0 if inverse else 1.0, **kind)
        found.append(out)
    return tuple(found)
