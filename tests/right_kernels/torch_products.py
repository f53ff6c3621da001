"""Right kernels in torch of products, codes and windows: experts, block scales, 4-bit weights, losses, pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F

# Layers and losses


def linear_sigmoid_grad__written_out(x, weight, bias, dy, *, precision="ieee"):
    wide, w = x.float(), weight.float()
    y = torch.sigmoid(wide @ w.t() + bias.float())
    dz = dy.float() * y * (1 - y)
    return (dz @ w).to(x.dtype), (dz.t() @ wide).to(x.dtype), dz.sum(0).to(x.dtype)


def linear_sigmoid_grad__autograd(x, weight, bias, dy, *, precision="ieee"):
    with torch.enable_grad():
        leaves = [each.double().detach().requires_grad_() for each in (x, weight, bias)]
        found = torch.autograd.grad(torch.sigmoid(F.linear(*leaves)), leaves, dy.double())
    return tuple(each.to(x.dtype).contiguous() for each in found)


def linear_sigmoid_grad__einsum(x, weight, bias, dy, *, precision="ieee"):
    wide, w = x.float(), weight.float()
    y = torch.einsum("mk,nk->mn", wide, w).add_(bias.float()).sigmoid_()
    dz = (1 - y).mul_(y).mul_(dy.float())
    dx, dw = torch.einsum("mn,nk->mk", dz, w), torch.einsum("mn,mk->nk", dz, wide)
    return dx.to(x.dtype), dw.to(x.dtype).contiguous(), torch.einsum("mn->n", dz).to(x.dtype)


def _share(target, ignore_index):
    counted = target != ignore_index
    return counted, counted.sum().clamp(min=1)


def linear_cross_entropy__autograd(x, weight, target, *, ignore_index=-100):
    with torch.enable_grad():
        wide, w = x.float().detach().requires_grad_(), weight.float().detach().requires_grad_()
        loss = F.cross_entropy(wide @ w.t(), target, ignore_index=ignore_index, reduction="none")
        dx, dw = torch.autograd.grad(loss.sum() / _share(target, ignore_index)[1], (wide, w))
    return loss.detach(), dx.to(x.dtype).contiguous(), dw.to(x.dtype).contiguous()


def linear_cross_entropy__chunks_of_tokens(x, weight, target, *, ignore_index=-100):
    counted, count = _share(target, ignore_index)
    losses, gradients, dw, w = [], [], torch.zeros(weight.shape), weight.float()
    for rows, labels, used in zip(x.split(16), target.split(16), counted.split(16), strict=True):
        logits = rows.float() @ w.t()
        log_p, index = torch.log_softmax(logits, -1), torch.where(used, labels, 0)[:, None]
        losses.append(torch.where(used, -log_p.gather(1, index)[:, 0], 0.0))
        dz = log_p.exp().scatter_add(1, index, torch.full(index.shape, -1.0))
        dz = torch.where(used[:, None], dz / count, 0.0)
        gradients.append(dz @ w)
        dw += dz.t() @ rows.float()
    return torch.cat(losses), torch.cat(gradients).to(x.dtype), dw.to(x.dtype)


# Products with experts and scales


def grouped_matmul__mask_of_each_expert(x, weight, sizes):
    expert = torch.repeat_interleave(torch.arange(len(sizes)), sizes.long())
    out = torch.zeros(len(x), weight.shape[2], dtype=x.dtype)
    for e in range(len(sizes)):
        rows = (expert == e).nonzero()[:, 0]
        out.index_copy_(0, rows, (x[rows].float() @ weight[e].float()).to(x.dtype))
    return out


def grouped_matmul__split(x, weight, sizes):
    parts = torch.split(x, sizes.tolist())
    return torch.cat([part @ w for part, w in zip(parts, weight, strict=True)]).contiguous()


def grouped_matmul__weights_of_each_row(x, weight, sizes):
    expert = torch.repeat_interleave(torch.arange(len(sizes)), sizes.long())
    rows = [x[t].double() @ weight[e].double() for t, e in enumerate(expert.tolist())]
    return torch.stack(rows).to(x.dtype) if rows else x.new_empty(0, weight.shape[2])


def grouped_matmul__padded_batches(x, weight, sizes):
    counts = sizes.tolist()
    padded = torch.zeros(len(counts), max([*counts, 1]), x.shape[1])
    start = 0
    for e, count in enumerate(counts):
        padded[e, :count] = x[start : start + count].float()
        start += count
    products = torch.bmm(padded, weight.float())
    return torch.cat([products[e, :count] for e, count in enumerate(counts)]).to(x.dtype)


def grouped_matmul_grad__split(x, dy, sizes):
    pairs = zip(torch.split(x, sizes.tolist()), torch.split(dy, sizes.tolist()), strict=True)
    return torch.stack([rows.t().float() @ g.float() for rows, g in pairs]).to(x.dtype)


def grouped_matmul_grad__autograd(x, dy, sizes):
    with torch.enable_grad():
        weight = torch.zeros(len(sizes), x.shape[1], dy.shape[1], dtype=torch.float64, requires_grad=True)
        parts = torch.split(x.double(), sizes.tolist())
        y = torch.cat([part @ w for part, w in zip(parts, weight, strict=True)])
        (dw,) = torch.autograd.grad(y, weight, dy.double())
    return dw.to(x.dtype)


def grouped_matmul_grad__outer_products(x, dy, sizes):
    ends = sizes.cumsum(0).tolist()
    out = torch.zeros(len(ends), x.shape[1], dy.shape[1])
    for t in range(len(x)):
        out[next(e for e, end in enumerate(ends) if t < end)] += torch.outer(x[t].float(), dy[t].float())
    return out.to(x.dtype)


def block_scaled_matmul__blocks_of_k(a, scale_a, b, scale_b):
    out = torch.zeros(a.shape[0], b.shape[0])
    rows = torch.arange(b.shape[0]) // 128
    for g in range(scale_a.shape[1]):
        span = slice(128 * g, 128 * g + 128)
        product = a[:, span].float() @ b[:, span].float().t()
        out += product * scale_a[:, g, None] * scale_b[rows, g][None]
    return out.bfloat16()


def block_scaled_matmul__dequantized_in_float64(a, scale_a, b, scale_b):
    at, rows = torch.arange(a.shape[1]) // 128, torch.arange(b.shape[0]) // 128
    left, right = a.double() * scale_a.double()[:, at], b.double() * scale_b.double()[rows][:, at]
    return (left @ right.t()).bfloat16()


def block_scaled_matmul__tiles_of_n(a, scale_a, b, scale_b):
    tiles = []
    for j in range(scale_b.shape[0]):
        block = b[128 * j : 128 * j + 128].float()
        total = torch.zeros(a.shape[0], len(block))
        for g in range(scale_b.shape[1]):
            span = slice(128 * g, 128 * g + 128)
            total.addmm_(a[:, span].float() * scale_a[:, g, None], (block[:, span] * scale_b[j, g]).t())
        tiles.append(total)
    return torch.cat(tiles, 1).bfloat16()


def grouped_block_scaled_matmul__split(x, scale_x, weight, scale_weight, sizes):
    counts = sizes.tolist()
    pieces = zip(x.split(counts), scale_x.split(counts), weight, scale_weight, strict=True)
    return torch.cat([block_scaled_matmul__blocks_of_k(*each) for each in pieces])


def grouped_block_scaled_matmul__dequantized_weights(x, scale_x, weight, scale_weight, sizes):
    n, k = weight.shape[1:]
    scale = scale_weight.repeat_interleave(128, 1)[:, :n].repeat_interleave(128, 2)[:, :, :k]
    w, rows = weight.float() * scale, x.float() * scale_x.repeat_interleave(128, 1)[:, :k]
    return torch.cat([part @ each.t() for part, each in zip(rows.split(sizes.tolist()), w, strict=True)]).bfloat16()


def _codes(weight, k):
    return torch.stack((weight & 0xF, weight >> 4), dim=-1).flatten(1)[:, :k].float()


def int4_matmul__dequantized(x, weight, scale, zero=None):
    k = x.shape[1]
    middle = torch.full(scale.shape, 8.0) if zero is None else zero.float()
    group = torch.arange(k) // 128
    w = (_codes(weight, k) - middle[:, group]) * scale.float()[:, group]
    return (x.float() @ w.t()).to(x.dtype)


def int4_matmul__groups_scaled_after_the_product(x, weight, scale, zero=None):
    k, total = x.shape[1], torch.zeros(x.shape[0], weight.shape[0])
    codes = _codes(weight, k)
    for g in range(scale.shape[1]):
        span = slice(128 * g, 128 * g + 128)
        middle = 8.0 if zero is None else zero[:, g, None].float()
        total += (x[:, span].float() @ (codes[:, span] - middle).t()) * scale[:, g].float()
    return total.to(x.dtype)


def int4_matmul__table_of_each_byte(x, weight, scale, zero=None):
    pairs = torch.tensor([[byte & 15, byte >> 4] for byte in range(256)], dtype=torch.float64)
    k, group = x.shape[1], torch.arange(x.shape[1]) // 128
    middle = 8.0 if zero is None else zero.double()[:, group]
    w = (pairs[weight.long()].flatten(1)[:, :k] - middle) * scale.double()[:, group]
    return F.linear(x.double(), w).to(x.dtype)


def int4_matmul__zero_points_by_row_sums(x, weight, scale, zero=None):
    """s (sum of x q - z sum of x), as in MLX and llama.cpp; an infinite x makes both sums infinite."""
    k, total = x.shape[1], torch.zeros(x.shape[0], weight.shape[0])
    codes = _codes(weight, k)
    for g in range(scale.shape[1]):
        span = slice(128 * g, 128 * g + 128)
        part, middle = x[:, span].float(), 8.0 if zero is None else zero[:, g].float()
        total += (part @ codes[:, span].t() - part.sum(1, keepdim=True) * middle) * scale[:, g].float()
    return total.to(x.dtype)


# Codes of 8 bits

LARGEST = {"float8_e4m3fn": (448.0, torch.float8_e4m3fn), "int8": (127.0, torch.int8)}
GROUPS = {"row": (1, None), "128": (1, 128), "128x128": (128, 128)}


def _stored(quotient, to):
    most, dtype = LARGEST[to]
    return torch.nan_to_num(quotient.round(), 0.0).clamp(-most, most).to(dtype) if to == "int8" else quotient.to(dtype)


def quantize__padded_view(x, *, group="row", to="float8_e4m3fn"):
    (rows, columns), (m, n) = GROUPS[group], x.shape
    columns = columns or max(n, 1)
    padded = torch.zeros(-(-m // rows) * rows, -(-n // columns) * columns)
    padded[:m, :n] = x.float()
    view = padded.view(len(padded) // rows, rows, -1, columns)
    scale = (view.abs().amax((1, 3), keepdim=True) / LARGEST[to][0]).clamp(min=2.0**-126)
    return _stored((view / scale).view(padded.shape)[:m, :n].contiguous(), to), scale[:, 0, :, 0].contiguous()


def quantize__blocks_one_by_one(x, *, group="row", to="float8_e4m3fn"):
    rows, columns = GROUPS[group][0], GROUPS[group][1] or max(x.shape[1], 1)
    codes = torch.empty(x.shape, dtype=LARGEST[to][1])
    scales = torch.empty(-(-x.shape[0] // rows), -(-x.shape[1] // columns))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            block = x[at].float()
            scales[i, j] = torch.maximum(block.abs().max() / LARGEST[to][0], torch.tensor(2.0**-126))
            codes[at] = _stored(block / scales[i, j], to)
    return codes, scales


def silu_mul_quantize__composed(a, b, *, group="row", to="float8_e4m3fn"):
    return quantize__padded_view(F.silu(a.float()) * b.float(), group=group, to=to)


def silu_mul_quantize__written_out(a, b, *, group="row", to="float8_e4m3fn"):
    return quantize__blocks_one_by_one(a.float() * torch.sigmoid(a.float()) * b.float(), group=group, to=to)


def rms_norm_quantize__composed(x, weight, *, eps=1e-6, group="row", to="float8_e4m3fn"):
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return quantize__padded_view(y, group=group, to=to)


def rms_norm_quantize__functional(x, weight, *, eps=1e-6, group="row", to="float8_e4m3fn"):
    return quantize__blocks_one_by_one(F.rms_norm(x.float(), x.shape[-1:], weight.float(), eps), group=group, to=to)


# Windows


def _windows(x, window, stride, padding):
    """(N, H, W, C) -> (N, C, R S, P Q), with minus infinity around the image."""
    images = F.pad(x.float().permute(0, 3, 1, 2), (padding,) * 4, value=-torch.inf)
    view = images.unfold(2, window[0], stride).unfold(3, window[1], stride)
    return view.flatten(4).flatten(2, 3).mT, view.shape[2:4]


def max_pool2d__unfolded(x, *, window, stride=1, padding=0):
    columns, (p, q) = _windows(x, window, stride, padding)
    return columns.amax(2).unflatten(2, (p, q)).permute(0, 2, 3, 1).to(x.dtype).contiguous()


def max_pool2d__shifted_maxima(x, *, window, stride=1, padding=0):
    n, h, w, c = x.shape
    p, q = ((size + 2 * padding - k) // stride + 1 for size, k in zip((h, w), window, strict=True))
    image = F.pad(x, (0, 0, padding, padding, padding, padding), value=-torch.inf)
    out = torch.full((n, p, q, c), -torch.inf, dtype=x.dtype)
    for r in range(window[0]):
        for s in range(window[1]):
            shifted = image[:, r : r + (p - 1) * stride + 1 : stride, s : s + (q - 1) * stride + 1 : stride]
            out = torch.maximum(out, shifted)
    return out


def max_pool2d__functional(x, *, window, stride=1, padding=0):
    images = x.permute(0, 3, 1, 2).contiguous()
    return F.max_pool2d(images, window, stride=stride, padding=padding).permute(0, 2, 3, 1).contiguous()


def max_pool2d_grad__autograd(x, dy, *, window, stride=1, padding=0):
    with torch.enable_grad():
        wide = x.float().permute(0, 3, 1, 2).contiguous().detach().requires_grad_()
        y = F.max_pool2d(wide, window, stride=stride, padding=padding)
        (dx,) = torch.autograd.grad(y, wide, dy.float().permute(0, 3, 1, 2))
    return dx.permute(0, 2, 3, 1).to(x.dtype).contiguous()


def max_pool2d_grad__scattered(x, dy, *, window, stride=1, padding=0):
    columns, (p, q) = _windows(x, window, stride, padding)
    n, h, w, c = x.shape
    chosen = columns.argmax(2).view(n, c, p, q)
    row = torch.arange(p)[:, None] * stride - padding + chosen // window[1]
    column = torch.arange(q) * stride - padding + chosen % window[1]
    dx = torch.zeros(n, c, h * w, dtype=torch.float64)
    dx.scatter_add_(2, (row * w + column).flatten(2), dy.double().permute(0, 3, 1, 2).flatten(2))
    return dx.view(n, c, h, w).permute(0, 2, 3, 1).to(x.dtype).contiguous()
