"""Right kernels in torch: expressions of tutorials, functional calls, modules, blocks, loops, other accumulations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

# Elementwise


def vector_add__operator(a, b):
    return a + b


def vector_add__in_place_on_a_copy(a, b):
    return a.clone().add_(b)


def vector_add__preallocated(a, b):
    out = torch.empty_like(a, memory_format=torch.contiguous_format)
    torch.add(a, b, out=out)
    return out


def vector_add__float32(a, b):
    return (a.float() + b.float()).to(a.dtype)


def vector_add__chunks(a, b):
    return torch.cat([x + y for x, y in zip(a.split(100), b.split(100), strict=True)]) if len(a) else a + b


def vector_add__subtract_the_negative(a, b):
    return a - (-b)


def vector_add__module(a, b):
    class Model(nn.Module):
        def forward(self, x, y):
            return torch.add(x, y)

    return Model()(a, b)


def matrix_add__operator(a, b):
    return a + b


def matrix_add__rows(a, b):
    return torch.stack([x + y for x, y in zip(a, b, strict=True)]) if len(a) else a + b


def matrix_add__transposed(a, b):
    return (a.t() + b.t()).t().contiguous()


def matrix_add__flat(a, b):
    return (a.reshape(-1) + b.reshape(-1)).view(a.shape)


def matrix_add__alpha(a, b):
    return torch.add(a, b, alpha=1)


def sigmoid__function(x):
    return torch.sigmoid(x)


def sigmoid__expit(x):
    return torch.special.expit(x)


def sigmoid__module(x):
    return nn.Sigmoid()(x)


def sigmoid__stable_by_sign(x):
    y = x.float()
    e = torch.exp(-y.abs())
    return torch.where(y >= 0, 1 / (1 + e), e / (1 + e)).to(x.dtype)


def sigmoid__reciprocal(x):
    return (1.0 / (1.0 + torch.exp(-x.double()))).to(x.dtype)


def sigmoid__log_domain(x):
    return F.logsigmoid(x.double()).exp().to(x.dtype)


# Rows


def softmax__functional(x):
    return F.softmax(x, dim=-1)


def softmax__module(x):
    return nn.Softmax(dim=-1)(x)


def softmax__tutorial(x):
    y = x.float()
    z = y - y.max(dim=1)[0][:, None]
    numerator = torch.exp(z)
    return (numerator / numerator.sum(dim=1)[:, None]).to(x.dtype)


def softmax__float32_argument(x):
    return torch.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def softmax__double(x):
    return torch.softmax(x.double(), -1).to(x.dtype)


def softmax__log_sum_exp(x):
    y = x.double()
    return (y - torch.logsumexp(y, -1, keepdim=True)).exp().to(x.dtype)


def softmax__base_two(x):
    y = x.double() * math.log2(math.e)
    p = torch.exp2(y - y.amax(-1, keepdim=True))
    return (p / p.sum(-1, keepdim=True)).to(x.dtype)


def softmax__online(x):
    y = x.float()
    m = torch.full((len(y), 1), -math.inf)
    d = torch.zeros(len(y), 1)
    for block in y.split(32, dim=1):
        new = torch.maximum(m, block.amax(1, keepdim=True))
        shift = torch.where(new.isneginf(), 0.0, new)
        d = d * torch.exp(m - shift) + torch.exp(block - shift).sum(1, keepdim=True)
        m = new
    return (torch.exp(y - m) / d).to(x.dtype)


def rms_norm__functional(x, weight, *, eps=1e-6):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rms_norm__llama_in_float32(x, weight, *, eps=1e-6):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def rms_norm__vector_norm(x, weight, *, eps=1e-6):
    y = x.double()
    mean = torch.linalg.vector_norm(y, dim=-1, keepdim=True) ** 2 / x.shape[-1]
    return (y / torch.sqrt(mean + eps) * weight.double()).to(x.dtype)


def rms_norm__einsum(x, weight, *, eps=1e-6):
    y = x.float()
    mean = torch.einsum("mn,mn->m", y, y) / x.shape[-1]
    return (y * (mean + eps).rsqrt()[:, None] * weight.float()).to(x.dtype)


def rms_norm__row_by_row(x, weight, *, eps=1e-6):
    rows = [row.float() / (row.float().square().mean() + eps).sqrt() * weight.float() for row in x]
    return torch.stack(rows).to(x.dtype)


def layer_norm__functional(x, weight, bias, *, eps=1e-5):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def layer_norm__module(x, weight, bias, *, eps=1e-5):
    norm = nn.LayerNorm(x.shape[-1], eps=eps, dtype=x.dtype)
    norm.weight.data, norm.bias.data = weight, bias
    with torch.no_grad():
        return norm(x)


def layer_norm__two_passes(x, weight, bias, *, eps=1e-5):
    y = x.float()
    mean = y.mean(-1, keepdim=True)
    variance = (y - mean).square().mean(-1, keepdim=True)
    return ((y - mean) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)


def layer_norm__var_mean(x, weight, bias, *, eps=1e-5):
    variance, mean = torch.var_mean(x.double(), dim=-1, keepdim=True, correction=0)
    return ((x.double() - mean) / (variance + eps).sqrt() * weight.double() + bias.double()).to(x.dtype)


def layer_norm__native(x, weight, bias, *, eps=1e-5):
    return torch.native_layer_norm(x, (x.shape[-1],), weight, bias, eps)[0]


def layer_norm__blocks_of_welford(x, weight, bias, *, eps=1e-5):
    y = x.double()
    count, mean, m2 = 0, torch.zeros(len(y), 1).double(), torch.zeros(len(y), 1).double()
    for block in y.split(16, dim=1):
        n = block.shape[1]
        delta = block.mean(1, keepdim=True) - mean
        spread = (block - block.mean(1, keepdim=True)).square().sum(1, keepdim=True)
        m2 = m2 + spread + delta**2 * count * n / (count + n)
        mean = mean + delta * n / (count + n)
        count += n
    normal = (y - mean) / (m2 / count + eps).sqrt()
    return (normal * weight.double() + bias.double()).to(x.dtype)


# Reductions


def sum__method(x, *, axis=None):
    return x.sum() if axis is None else x.sum(dim=axis)


def sum__float32_argument(x, *, axis=None):
    return torch.sum(x, dim=axis, dtype=torch.float32).to(x.dtype)


def sum__einsum(x, *, axis=None):
    return torch.einsum({None: "mn->", 0: "mn->n", 1: "mn->m"}[axis], x.float()).to(x.dtype)


def sum__two_steps(x, *, axis=None):
    y = x.float()
    return (y.sum(1).sum() if axis is None else y.sum(axis)).to(x.dtype)


def sum__pairwise(x, *, axis=None):
    y = x.float().reshape(-1, 1) if axis is None else x.float().movedim(axis, 0)
    while len(y) > 1:
        half = len(y) // 2
        y = torch.cat([y[:half] + y[half : 2 * half], y[2 * half :]])
    out = y.sum(0)
    return (out.reshape(()) if axis is None else out).to(x.dtype)


def sum__cumulative(x, *, axis=None):
    y = x.double().reshape(-1) if axis is None else x.double()
    return y.cumsum(0 if axis is None else axis).select(0 if axis is None else axis, -1).to(x.dtype)


# Products


def matmul__operator(a, b, *, precision="ieee"):
    return a @ b


def matmul__mm(a, b, *, precision="ieee"):
    return torch.mm(a, b)


def matmul__einsum(a, b, *, precision="ieee"):
    return torch.einsum("mk,kn->mn", a, b)


def matmul__linear(a, b, *, precision="ieee"):
    return F.linear(a, b.t())


def matmul__batched(a, b, *, precision="ieee"):
    return torch.bmm(a[None], b[None])[0]


def matmul__tensordot(a, b, *, precision="ieee"):
    return torch.tensordot(a, b, dims=1)


def matmul__addmm(a, b, *, precision="ieee"):
    return torch.addmm(torch.zeros(1, 1, dtype=a.dtype), a, b, beta=0)


def matmul__float32(a, b, *, precision="ieee"):
    return (a.float() @ b.float()).to(a.dtype)


def matmul__double(a, b, *, precision="ieee"):
    return (a.double() @ b.double()).to(a.dtype)


def matmul__transposed_product(a, b, *, precision="ieee"):
    return (b.t() @ a.t()).t().contiguous()


def matmul__split_k(a, b, *, precision="ieee"):
    out = torch.zeros(a.shape[0], b.shape[1])
    for begin in range(0, a.shape[1], 16):
        out += a[:, begin : begin + 16].float() @ b[begin : begin + 16].float()
    return out.to(a.dtype)


def matmul__tiles(a, b, *, precision="ieee"):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(0, a.shape[0], 32):
        for j in range(0, b.shape[1], 32):
            out[i : i + 32, j : j + 32] = a[i : i + 32] @ b[:, j : j + 32]
    return out


def matmul__outer_products(a, b, *, precision="ieee"):
    out = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        out += torch.outer(a[:, k].float(), b[k].float())
    return out.to(a.dtype)


def matmul__broadcast(a, b, *, precision="ieee"):
    return (a.float()[:, :, None] * b.float()[None]).sum(1).to(a.dtype)


def linear_sigmoid__functional(x, weight, bias, *, precision="ieee"):
    return torch.sigmoid(F.linear(x.float(), weight.float(), bias.float())).to(x.dtype)


def linear_sigmoid__addmm(x, weight, bias, *, precision="ieee"):
    return torch.addmm(bias.float(), x.float(), weight.float().t()).sigmoid().to(x.dtype)


def conv2d__functional(x, weight, *, stride=1, padding=0, precision="ieee"):
    out = F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), stride=stride, padding=padding)
    return out.permute(0, 2, 3, 1).contiguous()


def conv2d__unfold(x, weight, *, stride=1, padding=0, precision="ieee"):
    n, h, w, _ = x.shape
    k, r, s, _ = weight.shape
    p, q = (h + 2 * padding - r) // stride + 1, (w + 2 * padding - s) // stride + 1
    columns = F.unfold(x.permute(0, 3, 1, 2).float(), (r, s), padding=padding, stride=stride)
    out = weight.permute(0, 3, 1, 2).reshape(k, -1).float() @ columns
    return out.view(n, k, p, q).permute(0, 2, 3, 1).to(x.dtype).contiguous()


def attention__plain(q, k, v, *, causal=False, sm_scale=None):
    scale = sm_scale or q.shape[-1] ** -0.5
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1).float() for x in (k, v))
    s = q.float() @ k.transpose(-2, -1) * scale
    if causal:
        mask = torch.ones(s.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        s = s.masked_fill(~mask, -math.inf)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0) if causal else torch.softmax(s, dim=-1)
    return (p @ v).to(q.dtype)


def attention__einsum_by_group(q, k, v, *, causal=False, sm_scale=None):
    b, h, m, d = q.shape
    n, groups = k.shape[2], k.shape[1]
    scale = sm_scale or d**-0.5
    s = torch.einsum("bgrmd,bgnd->bgrmn", q.float().view(b, groups, h // groups, m, d), k.float()) * scale
    if causal:
        s = s + torch.full((m, n), -1e30).triu(n - m + 1)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    out = torch.einsum("bgrmn,bgnd->bgrmd", p / p.sum(-1, keepdim=True), v.float())
    if causal and m > n:
        out[..., : m - n, :] = 0
    return out.reshape(b, h, m, d).to(q.dtype)
