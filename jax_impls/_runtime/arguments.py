"""Checks of arguments: each error names the argument, what is expected and the actual value."""

from __future__ import annotations

import jax
import jax.numpy as jnp

DTYPES = ("float32", "float16", "bfloat16")
DIMS = {1: "(N,)", 2: "(M, N)"}


def check_add(operation: str, a: jax.Array, b: jax.Array, *, ndim: int) -> None:
    """Operands of an addition: `ndim` dimensions; equal shapes and dtypes. Raises: ValueError."""
    dims = DIMS[ndim]
    if a.ndim != ndim:
        raise ValueError(f"{operation}: a must be {dims}; got {a.shape}")
    if b.shape != a.shape:
        raise ValueError(f"{operation}: a is {dims}={a.shape}, so b must be {a.shape}; got {b.shape}")
    _check_dtypes(operation, a=a, b=b)


def check_elementwise(operation: str, x: jax.Array) -> None:
    """An array whose elements are computed each by itself. Raises: ValueError for other dtypes."""
    _check_dtypes(operation, x=x)


def check_rows(operation: str, x: jax.Array) -> None:
    """A matrix whose rows are computed each by itself. Raises: ValueError."""
    if x.ndim != 2:
        raise ValueError(f"{operation}: x must be (M, N); got {x.shape}")
    _check_dtypes(operation, x=x)


def check_norm(operation: str, x: jax.Array, **vectors: jax.Array) -> None:
    """A matrix (M, N), and vectors (N,) that its rows are multiplied by or added to. Raises: ValueError."""
    check_rows(operation, x)
    for name, vector in vectors.items():
        if vector.shape != x.shape[1:]:
            raise ValueError(f"{operation}: x is (M, N)={x.shape}, so {name} must be {x.shape[1:]}; got {vector.shape}")
    _check_dtypes(operation, x=x, **vectors)


def check_sum(operation: str, x: jax.Array, axis: int | None) -> None:
    """A matrix, and the axis that is summed: 0, 1 or None for both. Raises: ValueError."""
    check_rows(operation, x)
    if axis not in (None, 0, 1):
        raise ValueError(f"{operation}: axis must be None, 0 or 1; got {axis!r}")


def check_matmul(
    a: jax.Array,
    b: jax.Array,
    scale_a: jax.Array | None = None,
    scale_b: jax.Array | None = None,
    *,
    precision: str,
    float8: bool = False,
) -> None:
    """Operands of a matrix product: a (M, K), b (K, N), and for float8, where it is allowed, a scale of shape () each.

    Raises: ValueError.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {a.shape}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={a.shape}, so b must be ({a.shape[1]}, N); got {b.shape}")
    _check_dtypes("matmul", float8=float8, a=a, b=b)
    scaled = a.dtype == jnp.float8_e4m3fn
    _check_scales("matmul", a, {"scale_a": scale_a, "scale_b": scale_b})
    allowed = ("promoted", "fast") if scaled else ("ieee", "tf32")
    if precision not in allowed:
        raise ValueError(f"matmul: precision must be {allowed[0]!r} or {allowed[1]!r} for {a.dtype}; got {precision!r}")
    if precision == "tf32" and a.dtype != jnp.float32:
        raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")


def check_linear(
    operation: str,
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    dy: jax.Array | None = None,
    *,
    precision: str = "ieee",
) -> None:
    """A linear layer: x (M, K), weight (N, K), bias (N,), and dy (M, N), if there is a gradient of its output.

    Raises: ValueError; NotImplementedError for precision "tf32" without tensor cores.
    """
    if x.ndim != 2:
        raise ValueError(f"{operation}: x must be (M, K); got {x.shape}")
    M, K = x.shape
    if weight.ndim != 2 or weight.shape[1] != K:
        raise ValueError(f"{operation}: x is (M, K)={(M, K)}, so weight must be (N, {K}); got {weight.shape}")
    N = weight.shape[0]
    if bias.shape != (N,):
        raise ValueError(f"{operation}: weight is (N, K)={(N, K)}, so bias must be ({N},); got {bias.shape}")
    if dy is not None and dy.shape != (M, N):
        raise ValueError(f"{operation}: the output is (M, N)={(M, N)}, so dy must be too; got {dy.shape}")
    _check_dtypes(operation, **{"x": x, "weight": weight, "bias": bias}, **({} if dy is None else {"dy": dy}))
    if precision not in ("ieee", "tf32") or (precision == "tf32" and x.dtype != jnp.float32):
        raise ValueError(f'{operation}: precision must be "ieee", or "tf32" for float32; got {precision!r}')
    if precision == "tf32" and jax.default_backend() != "gpu":
        raise NotImplementedError(f"{operation}: precision 'tf32' needs NVIDIA's tensor cores; XLA on a CPU has none")


def check_attention(q: jax.Array, k: jax.Array, v: jax.Array, scales: tuple[jax.Array | None, ...] = ()) -> None:
    """Operands of attention: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), H a multiple of H_kv.

    `scales`: where float8 is allowed, a float32 of shape () of q, k and v each for float8; None for others.
    Raises: ValueError.
    """
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {q.shape}")
    B, H, _, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"attention: q is (B, H, S_q, D)={q.shape}, so k must be ({B}, H_kv, S_k, {D}); got {k.shape}")
    if v.shape != k.shape:
        raise ValueError(f"attention: k is (B, H_kv, S_k, D)={k.shape}, so v must be {k.shape}; got {v.shape}")
    if H % k.shape[1] if k.shape[1] else H:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={k.shape[1]}")
    _check_dtypes("attention", float8=bool(scales), q=q, k=k, v=v)
    if scales:
        _check_scales("attention", q, dict(zip(("scale_q", "scale_k", "scale_v"), scales, strict=True)))


def check_attention_grad(q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array) -> None:
    """Operands of attention, and the gradient of its output, of the shape of q. Raises: ValueError."""
    check_attention(q, k, v)
    if do.shape != q.shape:
        raise ValueError(f"attention_grad: q is (B, H, S_q, D)={q.shape}, so do must be {q.shape}; got {do.shape}")
    _check_dtypes("attention_grad", q=q, do=do)


def check_multi_head_attention(x: jax.Array, w_qkv: jax.Array, w_out: jax.Array, heads: int) -> None:
    """Operands of a layer: x (B, S, E), w_qkv (3 E, E), w_out (E, E), E a multiple of heads. Raises: ValueError."""
    if x.ndim != 3:
        raise ValueError(f"multi_head_attention: x must be (B, S, E); got {x.shape}")
    E = x.shape[2]
    for name, w, rows in (("w_qkv", w_qkv, 3 * E), ("w_out", w_out, E)):
        if w.shape != (rows, E):
            raise ValueError(
                f"multi_head_attention: x is (B, S, E)={x.shape}, so {name} must be {(rows, E)}; got {w.shape}"
            )
    if heads < 1 or E % heads != 0:
        raise ValueError(f"multi_head_attention: E must be a multiple of heads; got E={E}, heads={heads}")
    _check_dtypes("multi_head_attention", x=x, w_qkv=w_qkv, w_out=w_out)


def check_conv2d(x: jax.Array, weight: jax.Array, *, stride: int, padding: int, precision: str) -> None:
    """Images (N, H, W, C), and weights (K, R, S, C) of a window that fits into a padded image. Raises: ValueError."""
    if x.ndim != 4:
        raise ValueError(f"conv2d: x must be (N, H, W, C); got {x.shape}")
    if weight.ndim != 4 or weight.shape[3] != x.shape[3]:
        expected = f"x is (N, H, W, C)={x.shape}, so weight must be (K, R, S, {x.shape[3]})"
        raise ValueError(f"conv2d: {expected}; got {weight.shape}")
    if stride < 1 or padding < 0:
        raise ValueError(f"conv2d: stride must be at least 1 and padding at least 0; got {stride} and {padding}")
    for taps, size in zip(weight.shape[1:3], x.shape[1:3], strict=True):
        if not 1 <= taps <= size + 2 * padding:
            given = f"weight is (K, R, S, C)={weight.shape} and padding {padding}"
            raise ValueError(f"conv2d: {given}; R and S must be from 1 to {size} + 2 padding, that of x")
    _check_dtypes("conv2d", x=x, weight=weight)
    if precision not in ("ieee", "tf32") or (precision == "tf32" and x.dtype != jnp.float32):
        raise ValueError(f"conv2d: precision must be 'ieee', or 'tf32' for float32; got {precision!r} for {x.dtype}")


def check_lstm(
    x: jax.Array, w_ih: jax.Array, w_hh: jax.Array, bias: jax.Array, h0: jax.Array, c0: jax.Array
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
    _check_dtypes("lstm", x=x, **others)
    return T, B, I, H


def check_hopper(operation: str) -> None:
    """Raises: NotImplementedError unless JAX runs on a Hopper GPU."""
    device = jax.devices()[0]
    if getattr(device, "compute_capability", None) != "9.0":
        raise NotImplementedError(f"{operation}: needs a Hopper GPU (compute capability 9.0); JAX runs on {device}")


def _check_scales(operation: str, x: jax.Array, scales: dict[str, jax.Array | None]) -> None:
    """A scale of each operand if x, one of them, is float8; None otherwise."""
    expected = ((), "float32") if x.dtype == jnp.float8_e4m3fn else None
    for name, scale in scales.items():
        found = None if scale is None else (scale.shape, scale.dtype.name)
        if found != expected:
            raise ValueError(
                f"{operation}: {name} must be a float32 of shape () for float8, None for others; got {found}"
            )


def _check_dtypes(operation: str, *, float8: bool = False, **arguments: jax.Array) -> None:
    """All arguments have the dtype of the first, which is one of DTYPES, or float8 where that is allowed."""
    (first, x), *others = arguments.items()
    if x.dtype.name not in DTYPES and not (float8 and x.dtype == jnp.float8_e4m3fn):
        expected = "float32, float16, bfloat16 or float8_e4m3fn" if float8 else "float32, float16 or bfloat16"
        raise ValueError(f"{operation}: {first} must be {expected}; got {x.dtype}")
    for name, other in others:
        if other.dtype != x.dtype:
            raise ValueError(f"{operation}: {first} is {x.dtype}, so {name} must be {x.dtype}; got {other.dtype}")
