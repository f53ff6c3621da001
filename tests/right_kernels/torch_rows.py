"""Right kernels in torch of rows and elements: rotations, gates, norms with gradients, losses, codes, scans, steps."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

# Elements


def _all_features(angles, layout):
    """(S, D / 2) -> (S, 1, D): the angle of each feature."""
    wide = torch.cat((angles, angles), -1) if layout == "halves" else angles.repeat_interleave(2, dim=-1)
    return wide.float()[:, None]


def rope__rotate_half_or_every_two(q, k, cos, sin, *, layout="halves", inverse=False):
    def turned(x):
        if layout == "halves":
            half = x.shape[-1] // 2
            return torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    c, s = _all_features(cos, layout), _all_features(sin, layout) * (-1 if inverse else 1)
    return tuple((x.float() * c + turned(x.float()) * s).to(x.dtype) for x in (q, k))


def rope__complex_numbers(q, k, cos, sin, *, layout="halves", inverse=False):
    turn = torch.complex(cos.float(), -sin.float() if inverse else sin.float())[None, :, None]

    def turned(x):
        wide = x.float()
        a, b = wide.chunk(2, -1) if layout == "halves" else (wide[..., ::2], wide[..., 1::2])
        out = torch.view_as_real(torch.complex(a, b) * turn)
        return (out.mT if layout == "halves" else out).flatten(-2).to(x.dtype).contiguous()

    return turned(q), turned(k)


def rope__written_into_slices(q, k, cos, sin, *, layout="halves", inverse=False):
    c, s = cos.double()[:, None], (-sin if inverse else sin).double()[:, None]
    results = []
    for x in (q, k):
        half, out = x.shape[-1] // 2, torch.empty(x.shape, dtype=x.dtype)
        first, second = (
            (slice(0, half), slice(half, None)) if layout == "halves" else (slice(0, None, 2), slice(1, None, 2))
        )
        a, b = x[..., first].double(), x[..., second].double()
        out[..., first], out[..., second] = a * c - b * s, a * s + b * c
        results.append(out)
    return tuple(results)


ROOT, CUBE = math.sqrt(2.0 / math.pi), 0.044715


def silu_mul__functional(a, b, *, activation="silu"):
    act = F.silu if activation == "silu" else lambda x: F.gelu(x, approximate="tanh")
    return (act(a.float()) * b.float()).to(a.dtype).contiguous()


def silu_mul__written_out(a, b, *, activation="silu"):
    x = a.double()
    gate = torch.sigmoid(x) if activation == "silu" else 0.5 * (1.0 + torch.tanh(ROOT * (x + CUBE * x**3)))
    return (x * gate * b.double()).to(a.dtype).contiguous()


def silu_mul__rows(a, b, *, activation="silu"):
    out = torch.empty(a.shape, dtype=a.dtype)
    for row, x, y in zip(out, a.float(), b.float(), strict=True):
        row.copy_((F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")) * y)
    return out


def silu_mul__joined_halves(a, b, *, activation="silu"):
    gate, up = torch.cat((a, b), dim=-1).float().chunk(2, dim=-1)
    act = gate * torch.sigmoid(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")
    return (act * up).to(a.dtype)


def silu_mul_grad__autograd(a, b, dy, *, activation="silu"):
    with torch.enable_grad():
        x, y = a.double().detach().requires_grad_(), b.double().detach().requires_grad_()
        act = F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")
        da, db = torch.autograd.grad(act * y, (x, y), dy.double())
    return da.to(a.dtype).contiguous(), db.to(a.dtype).contiguous()


def silu_mul_grad__written_out(a, b, dy, *, activation="silu"):
    x, y, g = a.double(), b.double(), dy.double()
    if activation == "silu":
        s = torch.sigmoid(x)
        act, slope = x * s, s * (1 + x * (1 - s))
    else:
        t = torch.tanh(ROOT * (x + CUBE * x**3))
        act = 0.5 * x * (1 + t)
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x)
    return (g * y * slope).to(a.dtype).contiguous(), (g * act).to(a.dtype).contiguous()


def silu_mul_grad__rows(a, b, dy, *, activation="silu"):
    da, db = torch.empty(a.shape, dtype=a.dtype), torch.empty(a.shape, dtype=a.dtype)
    for i in range(len(a)):
        one, other = silu_mul_grad__written_out(a[i : i + 1], b[i : i + 1], dy[i : i + 1], activation=activation)
        da[i], db[i] = one[0], other[0]
    return da, db


def _adam(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay, decoupled, lerp):
    p, g = param.float(), grad.float()
    if decoupled:
        p = p * (1 - lr * weight_decay)
    elif weight_decay:
        g = g.add(p, alpha=weight_decay)
    m = torch.lerp(m, g, 1 - beta1) if lerp else beta1 * m + (1 - beta1) * g
    v = (v * beta2).addcmul(g, g, value=1 - beta2) if lerp else beta2 * v + (1 - beta2) * g * g
    return p, m, v


def adam_step__bias_in_the_moments(
    param, grad, m, v, *, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False
):
    p, m, v = _adam(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay, decoupled, False)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    out = p - lr * m_hat / (v_hat.sqrt() + eps)
    return out.to(param.dtype).contiguous(), m.contiguous(), v.contiguous()


def adam_step__bias_in_the_step(
    param, grad, m, v, *, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False
):
    p, m, v = _adam(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay, decoupled, True)
    denominator = (v.sqrt() / math.sqrt(1 - beta2**step)).add_(eps)
    out = p.clone().addcdiv_(m, denominator, value=-lr / (1 - beta1**step))
    return out.to(param.dtype).contiguous(), m.contiguous(), v.contiguous()


def adam_step__chunks_in_float64(
    param, grad, m, v, *, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False
):
    pieces = [each.double().split(256) for each in (param, grad, m, v)]
    found = []
    for p, g, m1, v1 in zip(*pieces, strict=True):
        g = g if decoupled else g + weight_decay * p
        m1, v1 = beta1 * m1 + (1 - beta1) * g, beta2 * v1 + (1 - beta2) * g.square()
        rate = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        p = p * (1 - lr * weight_decay) if decoupled else p
        found.append((p - rate * m1 / (v1.sqrt() + eps * math.sqrt(1 - beta2**step)), m1, v1))
    out, first, second = (torch.cat(each) for each in zip(*found, strict=True))
    return out.to(param.dtype), first.float(), second.float()


# Norms and their gradients


def add_rms_norm__functional(x, residual, weight, *, eps=1e-6):
    r = torch.add(x, residual).contiguous()
    return F.rms_norm(r.float(), r.shape[-1:], weight.float(), eps).to(x.dtype), r


def add_rms_norm__in_place_on_a_copy(x, residual, weight, *, eps=1e-6):
    r = residual.clone(memory_format=torch.contiguous_format).add_(x)
    wide = r.float()
    y = wide.mul(wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()).mul_(weight.float())
    return y.to(x.dtype), r


def add_rms_norm__rows(x, residual, weight, *, eps=1e-6):
    r = (x + residual).contiguous()
    y = torch.empty_like(r)
    for out, row in zip(y, r.double(), strict=True):
        out.copy_(row * weight.double() / torch.sqrt(torch.dot(row, row) / row.numel() + eps))
    return y, r


def rms_norm_grad__liger(x, weight, dy, *, eps=1e-6):
    wide, n = x.float(), x.shape[1]
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    m = dy.float() * weight.float()
    normed = wide * rstd
    dx = rstd * (m - normed * ((m * normed).sum(-1, keepdim=True) / n))
    return dx.to(x.dtype).contiguous(), (dy.float() * normed).sum(0).to(x.dtype)


def rms_norm_grad__autograd(x, weight, dy, *, eps=1e-6):
    with torch.enable_grad():
        wide, w = x.double().detach().requires_grad_(), weight.double().detach().requires_grad_()
        y = wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * w
        dx, dweight = torch.autograd.grad(y, (wide, w), dy.double())
    return dx.to(x.dtype).contiguous(), dweight.to(x.dtype)


def rms_norm_grad__partial_sums_of_rows(x, weight, dy, *, eps=1e-6):
    pieces, partial = [], []
    for rows, g in zip(x.double().split(4), dy.double().split(4), strict=True):
        rstd = (rows.square().mean(-1, keepdim=True) + eps).rsqrt()
        normed, m = rows * rstd, g * weight.double()
        pieces.append(rstd * (m - normed * (m * normed).mean(-1, keepdim=True)))
        partial.append((g * normed).sum(0))
    return torch.cat(pieces).to(x.dtype), torch.stack(partial).sum(0).to(x.dtype)


def layer_norm_grad__llm_c(x, weight, dy, *, eps=1e-5):
    wide, g = x.float(), dy.float()
    mean = wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + eps)
    norm, dnorm = (wide - mean) * rstd, g * weight.float()
    dx = (dnorm - dnorm.mean(-1, keepdim=True) - norm * (dnorm * norm).mean(-1, keepdim=True)) * rstd
    return dx.to(x.dtype).contiguous(), (norm * g).sum(0).to(x.dtype), g.sum(0).to(x.dtype)


def layer_norm_grad__autograd(x, weight, dy, *, eps=1e-5):
    with torch.enable_grad():
        wide, w = x.double().detach().requires_grad_(), weight.double().detach().requires_grad_()
        b = torch.zeros_like(w, requires_grad=True)
        found = torch.autograd.grad(F.layer_norm(wide, wide.shape[-1:], w, b, eps), (wide, w, b), dy.double())
    return tuple(each.to(x.dtype).contiguous() for each in found)


def layer_norm_grad__native_backward(x, weight, dy, *, eps=1e-5):
    wide, w = x.double().contiguous(), weight.double().contiguous()
    _, mean, rstd = torch.native_layer_norm(wide, wide.shape[-1:], w, None, eps)
    found = torch.ops.aten.native_layer_norm_backward(
        dy.double().contiguous(), wide, wide.shape[-1:], mean, rstd, w, torch.zeros_like(w), [True, True, True]
    )
    return tuple(each.to(x.dtype) for each in found)


# Scans and order


def cumsum__cast(x):
    return x.float().cumsum(-1).to(x.dtype).contiguous()


def cumsum__blocks_with_a_carry(x):
    carry, blocks = torch.zeros(len(x), 1, dtype=torch.float64), []
    for block in x.double().split(32, dim=1):
        blocks.append(block.cumsum(1) + carry)
        carry = blocks[-1][:, -1:]
    return torch.cat(blocks, 1).to(x.dtype) if blocks else torch.empty(x.shape, dtype=x.dtype)


def cumsum__doubling_steps(x):
    y, step = x.float().clone(memory_format=torch.contiguous_format), 1
    while step < x.shape[1]:
        y = torch.cat((y[:, :step], y[:, step:] + y[:, :-step]), dim=1)
        step *= 2
    return y.to(x.dtype)


def cumsum__columns(x):
    out, total = torch.empty(x.shape, dtype=x.dtype), torch.zeros(len(x))
    for j in range(x.shape[1]):
        total = total + x[:, j].float()
        out[:, j] = total
    return out


def top_k__function(x, *, k):
    return tuple(torch.topk(x, k, dim=-1, largest=True, sorted=True))


def top_k__sort(x, *, k):
    values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[:, :k].contiguous(), indices[:, :k].contiguous()


def top_k__one_maximum_after_the_other(x, *, k):
    left = x.float().nan_to_num(nan=math.inf, posinf=torch.finfo(torch.float32).max, neginf=-3e38)
    left, rows, chosen = torch.where(x.isneginf(), -3.2e38, left), torch.arange(len(x)), []
    for _ in range(k):
        chosen.append(left.argmax(1))
        left[rows, chosen[-1]] = -math.inf
    indices = torch.stack(chosen, 1)
    return x.gather(1, indices), indices


# Losses


def _shares(target, ignore_index):
    counted = target != ignore_index
    return counted, counted / counted.sum().clamp(min=1)


def cross_entropy__log_softmax(logits, target, *, ignore_index=-100, label_smoothing=0.0):
    log_p, v = torch.log_softmax(logits.double(), -1), logits.shape[1]
    counted, share = _shares(target, ignore_index)
    index = torch.where(counted, target, 0)[:, None]
    wanted, mean = log_p.gather(1, index)[:, 0], log_p.sum(-1) / v
    smooth = label_smoothing * mean if label_smoothing else 0.0
    loss = torch.where(counted, -(1 - label_smoothing) * wanted - smooth, 0.0)
    grad = log_p.exp() - label_smoothing / v
    grad = grad.scatter_add(1, index, torch.full_like(index, -1, dtype=grad.dtype) * (1 - label_smoothing))
    grad = torch.where(counted[:, None], grad * share.double()[:, None], 0.0)
    return loss.float(), grad.to(logits.dtype)


def cross_entropy__autograd_of_the_mean(logits, target, *, ignore_index=-100, label_smoothing=0.0):
    with torch.enable_grad():
        z = logits.float().detach().requires_grad_()
        arguments = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        loss = F.cross_entropy(z, target, reduction="none", **arguments)
        counted = (target != ignore_index).sum().clamp(min=1)
        (grad,) = torch.autograd.grad(loss.sum() / counted, z)
    return loss.detach(), grad.to(logits.dtype).contiguous()


def cross_entropy__row_by_row(logits, target, *, ignore_index=-100, label_smoothing=0.0):
    rows, v = logits.double(), logits.shape[1]
    loss, grad = torch.zeros(len(rows)), torch.zeros(logits.shape, dtype=logits.dtype)
    counted = max(1, int((target != ignore_index).sum()))
    for t, (row, label) in enumerate(zip(rows, target.tolist(), strict=True)):
        if label == ignore_index:
            continue
        log_sum = torch.logsumexp(row, 0)
        q = torch.full((v,), label_smoothing / v, dtype=torch.float64)
        q[label] += 1 - label_smoothing
        loss[t] = log_sum - (1 - label_smoothing) * row[label] - (label_smoothing and label_smoothing * row.mean())
        grad[t] = ((row - log_sum).exp() - q) / counted
    return loss, grad
