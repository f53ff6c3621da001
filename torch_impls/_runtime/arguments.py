"""Checks of arguments: each error names the argument, what is expected and the actual value."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = torch.float8_e4m3fn
DIMS = {1: "(N,)", 2: "(M, N)"}


def check_add(operation: str, a: Tensor, b: Tensor, *, ndim: int) -> None:
    """Operands of an addition: `ndim` dimensions; equal shapes, dtypes and devices. Raises: ValueError."""
    if a.ndim != ndim:
        raise ValueError(f"{operation}: a must be {DIMS[ndim]}; got {tuple(a.shape)}")
    if b.shape != a.shape:
        shape = tuple(a.shape)
        raise ValueError(f"{operation}: a is {DIMS[ndim]}={shape}, so b must be {shape}; got {tuple(b.shape)}")
    _check_kinds(operation, ("a", "b"), (a, b))


def check_elementwise(operation: str, x: Tensor) -> None:
    """An array whose elements are computed each by itself. Raises: ValueError for other dtypes."""
    _check_kinds(operation, ("x",), (x,))


def check_rows(operation: str, x: Tensor) -> None:
    """A matrix whose rows are computed each by itself. Raises: ValueError."""
    if x.ndim != 2:
        raise ValueError(f"{operation}: x must be (M, N); got {tuple(x.shape)}")
    _check_kinds(operation, ("x",), (x,))


def check_norm(operation: str, x: Tensor, **vectors: Tensor) -> None:
    """A matrix (M, N), and vectors (N,) that its rows are multiplied by or added to. Raises: ValueError."""
    check_rows(operation, x)
    for name, vector in vectors.items():
        if vector.shape != x.shape[1:]:
            raise ValueError(
                f"{operation}: x is (M, N)={tuple(x.shape)}, so {name} must be {tuple(x.shape[1:])}; "
                f"got {tuple(vector.shape)}"
            )
    _check_kinds(operation, ("x", *vectors), (x, *vectors.values()))


def check_sum(operation: str, x: Tensor, axis: int | None) -> None:
    """A matrix, and the axis that is summed: 0, 1 or None for both. Raises: ValueError."""
    check_rows(operation, x)
    if axis not in (None, 0, 1):
        raise ValueError(f"{operation}: axis must be None, 0 or 1; got {axis!r}")


def check_matmul(a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str) -> None:
    """Operands of a matrix product: a (M, K), b (K, N), and for float8 a float32 scale of shape () each.

    Raises: ValueError; NotImplementedError for precision "tf32" on a CPU.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={tuple(a.shape)}, so b must be ({a.shape[1]}, N); got {tuple(b.shape)}")
    _check_kinds("matmul", ("a", "b"), (a, b), float8=True)
    allowed = ("promoted", "fast") if a.dtype == FLOAT8 else ("ieee", "tf32")
    if precision not in allowed:
        raise ValueError(f"matmul: precision must be {allowed[0]!r} or {allowed[1]!r} for {a.dtype}; got {precision!r}")
    if precision == "tf32":
        if a.dtype != torch.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        if not a.is_cuda:
            raise NotImplementedError(f"matmul: precision 'tf32' needs NVIDIA's tensor cores; a is on {a.device}")
    _check_scales("matmul", ("a", "b"), a, (scale_a, scale_b))


def check_linear(
    operation: str, x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor | None = None, *, precision: str = "ieee"
) -> None:
    """A linear layer: x (M, K), weight (N, K), bias (N,), and dy (M, N), if there is a gradient of its output.

    Raises: ValueError; NotImplementedError for precision "tf32" on a CPU.
    """
    if x.ndim != 2:
        raise ValueError(f"{operation}: x must be (M, K); got {tuple(x.shape)}")
    M, K = x.shape
    if weight.ndim != 2 or weight.shape[1] != K:
        raise ValueError(f"{operation}: x is (M, K)={(M, K)}, so weight must be (N, {K}); got {tuple(weight.shape)}")
    N = weight.shape[0]
    if bias.shape != (N,):
        raise ValueError(f"{operation}: weight is (N, K)={(N, K)}, so bias must be ({N},); got {tuple(bias.shape)}")
    if dy is not None and dy.shape != (M, N):
        raise ValueError(f"{operation}: the output is (M, N)={(M, N)}, so dy must be too; got {tuple(dy.shape)}")
    given = {"x": x, "weight": weight, "bias": bias} | ({} if dy is None else {"dy": dy})
    _check_kinds(operation, tuple(given), tuple(given.values()))
    if precision not in ("ieee", "tf32") or (precision == "tf32" and x.dtype != torch.float32):
        raise ValueError(f'{operation}: precision must be "ieee", or "tf32" for float32; got {precision!r}')
    if precision == "tf32" and not x.is_cuda:
        raise NotImplementedError(f"{operation}: precision 'tf32' needs NVIDIA's tensor cores; x is on {x.device}")


def check_attention(q: Tensor, k: Tensor, v: Tensor, scales: tuple[Tensor | None, ...] = ()) -> None:
    """Operands of attention: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), H a multiple of H_kv.

    `scales`: where float8 is allowed, a float32 of shape () of q, k and v each for float8; None for others.
    Raises: ValueError.
    """
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {tuple(q.shape)}")
    B, H, _, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        expected = f"q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D})"
        raise ValueError(f"attention: {expected}; got {tuple(k.shape)}")
    if v.shape != k.shape:
        expected = f"k is (B, H_kv, S_k, D)={tuple(k.shape)}, so v must be {tuple(k.shape)}"
        raise ValueError(f"attention: {expected}; got {tuple(v.shape)}")
    if H % k.shape[1] if k.shape[1] else H:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={k.shape[1]}")
    _check_kinds("attention", ("q", "k", "v"), (q, k, v), float8=bool(scales))
    if scales:
        _check_scales("attention", ("q", "k", "v"), q, scales)


def check_attention_grad(q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> None:
    """Operands of attention, and the gradient of its output, of the shape of q. Raises: ValueError."""
    check_attention(q, k, v)
    if do.shape != q.shape:
        shape = tuple(q.shape)
        raise ValueError(f"attention_grad: q is (B, H, S_q, D)={shape}, so do must be {shape}; got {tuple(do.shape)}")
    _check_kinds("attention_grad", ("q", "do"), (q, do))


def check_multi_head_attention(x: Tensor, w_qkv: Tensor, w_out: Tensor, heads: int) -> None:
    """Operands of a layer: x (B, S, E), w_qkv (3 E, E), w_out (E, E), E a multiple of heads. Raises: ValueError."""
    if x.ndim != 3:
        raise ValueError(f"multi_head_attention: x must be (B, S, E); got {tuple(x.shape)}")
    E = x.shape[2]
    for name, w, rows in (("w_qkv", w_qkv, 3 * E), ("w_out", w_out, E)):
        if w.shape != (rows, E):
            raise ValueError(
                f"multi_head_attention: x is (B, S, E)={tuple(x.shape)}, so {name} must be {(rows, E)}; "
                f"got {tuple(w.shape)}"
            )
    if heads < 1 or E % heads != 0:
        raise ValueError(f"multi_head_attention: E must be a multiple of heads; got E={E}, heads={heads}")
    _check_kinds("multi_head_attention", ("x", "w_qkv", "w_out"), (x, w_qkv, w_out))


def check_conv2d(x: Tensor, weight: Tensor, *, stride: int, padding: int, precision: str) -> None:
    """Images (N, H, W, C), and weights (K, R, S, C) of a window that fits into a padded image.

    Raises: ValueError; NotImplementedError for precision "tf32" on a CPU.
    """
    if x.ndim != 4:
        raise ValueError(f"conv2d: x must be (N, H, W, C); got {tuple(x.shape)}")
    if weight.ndim != 4 or weight.shape[3] != x.shape[3]:
        expected = f"x is (N, H, W, C)={tuple(x.shape)}, so weight must be (K, R, S, {x.shape[3]})"
        raise ValueError(f"conv2d: {expected}; got {tuple(weight.shape)}")
    if stride < 1 or padding < 0:
        raise ValueError(f"conv2d: stride must be at least 1 and padding at least 0; got {stride} and {padding}")
    for taps, size in zip(weight.shape[1:3], x.shape[1:3], strict=True):
        if not 1 <= taps <= size + 2 * padding:
            given = f"weight is (K, R, S, C)={tuple(weight.shape)} and padding {padding}"
            raise ValueError(f"conv2d: {given}; R and S must be from 1 to {size} + 2 padding, that of x")
    _check_kinds("conv2d", ("x", "weight"), (x, weight))
    if precision not in ("ieee", "tf32") or (precision == "tf32" and x.dtype != torch.float32):
        raise ValueError(f"conv2d: precision must be 'ieee', or 'tf32' for float32; got {precision!r} for {x.dtype}")
    if precision == "tf32" and not x.is_cuda:
        raise NotImplementedError(f"conv2d: precision 'tf32' needs NVIDIA's tensor cores; x is on {x.device}")


def check_lstm(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
) -> tuple[int, int, int, int]:
    """Operands of a layer of LSTM cells: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H).

    Returns T, B, I and H. Raises: ValueError.
    """
    for name, operand, dims in (("x", x, ("T", "B", "I")), ("h0", h0, ("B", "H"))):
        if operand.ndim != len(dims):
            raise ValueError(f"lstm: {name} must be ({', '.join(dims)}); got {tuple(operand.shape)}")
    (T, B, I), H = x.shape, h0.shape[1]  # noqa: E741
    wanted = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "bias": (4 * H,), "h0": (B, H), "c0": (B, H)}
    others = {"w_ih": w_ih, "w_hh": w_hh, "bias": bias, "h0": h0, "c0": c0}
    for name, shape in wanted.items():
        if others[name].shape != shape:
            raise ValueError(
                f"lstm: x is (T, B, I)={tuple(x.shape)} and h0 has {H} columns, so {name} must be {shape}; "
                f"got {tuple(others[name].shape)}"
            )
    _check_kinds("lstm", ("x", *others), (x, *others.values()))
    return T, B, I, H


def _check_kinds(operation: str, names: tuple[str, ...], tensors: tuple[Tensor, ...], *, float8: bool = False) -> None:
    """All have the dtype and device of the first, whose dtype is one of DTYPES, or float8 where that is allowed."""
    first, x = names[0], tensors[0]
    if x.dtype not in DTYPES and not (float8 and x.dtype == FLOAT8):
        expected = "float32, float16, bfloat16 or float8_e4m3fn" if float8 else "float32, float16 or bfloat16"
        raise ValueError(f"{operation}: {first} must be {expected}; got {x.dtype}")
    for name, other in zip(names[1:], tensors[1:], strict=True):
        if other.dtype != x.dtype:
            raise ValueError(f"{operation}: {first} is {x.dtype}, so {name} must be {x.dtype}; got {other.dtype}")
        if other.device != x.device:
            raise ValueError(
                f"{operation}: {first} is on {x.device}, so {name} must be on {x.device}; got {other.device}"
            )


def _check_scales(operation: str, names: tuple[str, ...], x: Tensor, scales: tuple[Tensor | None, ...]) -> None:
    """A scale of shape () for each operand if x, the first, is float8; None otherwise."""
    expected = (torch.Size(), torch.float32, x.device) if x.dtype == FLOAT8 else None
    for name, scale in zip(names, scales, strict=True):
        found = None if scale is None else (scale.shape, scale.dtype, scale.device)
        if found != expected:
            raise ValueError(
                f"{operation}: {names[0]} is {x.dtype}, so scale_{name} must be {_text(expected)}; got {_text(found)}"
            )


def _text(scale: tuple[torch.Size, torch.dtype, torch.device] | None) -> str:
    return "None" if scale is None else f"{scale[1]} {tuple(scale[0])} on {scale[2]}"
