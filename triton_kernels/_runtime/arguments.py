"""Checks of the launchers' arguments: each error names the argument, what is expected and the actual value."""

import torch
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = torch.float8_e4m3fn


DIMS = {1: "(N,)", 2: "(M, N)"}


def check_add(operation: str, a: Tensor, b: Tensor, *, ndim: int) -> None:
    """Operands of an addition: `ndim` dimensions; equal shapes, dtypes and devices. Raises: ValueError."""
    dims = DIMS[ndim]
    if a.ndim != ndim:
        raise ValueError(f"{operation}: a must be {dims}; got {tuple(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(
            f"{operation}: a is {dims}={tuple(a.shape)}, so b must be {tuple(a.shape)}; got {tuple(b.shape)}"
        )
    _check_dtypes(operation, ("a", "b"), (a, b))
    _check_devices(operation, ("a", "b"), (a, b))
    _check_runs(operation, "a", a)


def check_elementwise(operation: str, x: Tensor) -> None:
    """A tensor whose elements are computed each by itself.

    Raises: ValueError for other dtypes, and on a CPU without the interpreter.
    """
    _check_dtypes(operation, ("x",), (x,))
    _check_runs(operation, "x", x)


def check_rows(operation: str, x: Tensor) -> None:
    """A matrix whose rows are computed each by itself. Raises: ValueError."""
    if x.ndim != 2:
        raise ValueError(f"{operation}: x must be (M, N); got {tuple(x.shape)}")
    _check_dtypes(operation, ("x",), (x,))
    _check_runs(operation, "x", x)


def check_norm(operation: str, x: Tensor, **vectors: Tensor) -> None:
    """A matrix (M, N), and vectors (N,) that its rows are multiplied by or added to. Raises: ValueError."""
    check_rows(operation, x)
    for name, vector in vectors.items():
        if vector.shape != x.shape[1:]:
            raise ValueError(
                f"{operation}: x is (M, N)={tuple(x.shape)}, so {name} must be {tuple(x.shape[1:])}; "
                f"got {tuple(vector.shape)}"
            )
    _check_dtypes(operation, ("x", *vectors), (x, *vectors.values()))
    _check_devices(operation, ("x", *vectors), (x, *vectors.values()))


def check_sum(operation: str, x: Tensor, axis: int | None) -> None:
    """A matrix, and the axis that is summed: 0, 1 or None for both. Raises: ValueError."""
    check_rows(operation, x)
    if axis not in (None, 0, 1):
        raise ValueError(f"{operation}: axis must be None, 0 or 1; got {axis!r}")


def check_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    *,
    precision: str,
    float8: bool = False,
    interpreter: bool = True,
) -> None:
    """Operands of a matrix product: a (M, K), b (K, N), and for float8, where it is allowed, a scale of shape () each.

    `interpreter`: the kernel runs in Triton's interpreter too (Gluon has none). Raises: ValueError.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    _check_dtypes("matmul", ("a", "b"), (a, b), float8=float8)
    if a.dtype == FLOAT8:
        precisions, allowed = ("promoted", "fast"), '"promoted" or "fast" for float8'
    else:
        precisions = ("ieee", "tf32") if a.dtype == torch.float32 else ("ieee",)
        allowed = '"ieee", or "tf32" for float32'
    if precision not in precisions:
        raise ValueError(f'matmul: precision must be {allowed}; got "{precision}" for {a.dtype}')
    _check_devices("matmul", ("a", "b"), (a, b))
    _check_scales("matmul", ("a", "b"), a, (scale_a, scale_b))
    _check_runs("matmul", "a", a, interpreter=interpreter)


def check_tensor_cores(a: Tensor, M: int, N: int, precision: str) -> None:
    """Sizes and dtypes that the TMA kernels do not support.

    Raises: NotImplementedError for float32 products, for M or N above 2^27 and for K above 2^30.
    """
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: float32 with precision="ieee" has no use for the tensor cores')
    if max(M, N) > 2**27:  # the range of exact_quotient with the smallest tiles
        raise NotImplementedError(f"matmul: M and N must be at most 2^27; got {M} and {N}")
    _check_terms(a.shape[1])


def check_sizes(M: int, N: int, K: int) -> None:
    """Raises: NotImplementedError for M above 2^28, N above 2^26 or K above 2^30."""
    if M > 2**28 or N > 2**26:  # the range of exact_quotient with the smallest tiles
        raise NotImplementedError(f"matmul: M must be at most 2^28, N at most 2^26; got {M} and {N}")
    _check_terms(K)


def _check_terms(K: int) -> None:
    """Raises: NotImplementedError for K above 2^30: the kernels count K in 32 bits, a step beyond its end included."""
    if K > 2**30:
        raise NotImplementedError(f"matmul: K must be at most 2^30; got {K}")


def check_linear(
    operation: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    dy: Tensor | None = None,
    *,
    precision: str = "ieee",
    interpreter: bool = True,
) -> None:
    """A linear layer: x (M, K), weight (N, K), bias (N,), and dy (M, N), if there is a gradient of its output.

    `interpreter`: the kernel runs in Triton's interpreter too (Gluon has none). Raises: ValueError; NotImplementedError
    for K above 2^30.
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
    _check_dtypes(operation, tuple(given), tuple(given.values()))
    _check_devices(operation, tuple(given), tuple(given.values()))
    if precision not in ("ieee", "tf32") or (precision == "tf32" and x.dtype != torch.float32):
        raise ValueError(f'{operation}: precision must be "ieee", or "tf32" for float32; got "{precision}"')
    if M > 2**28 or N > 2**26 or K > 2**30:  # the range of exact_quotient with the smallest tiles; steps of K
        raise NotImplementedError(
            f"{operation}: M must be at most 2^28, N at most 2^26, K at most 2^30; got {(M, N, K)}"
        )
    _check_runs(operation, "x", x, interpreter=interpreter)


def check_attention(
    q: Tensor, k: Tensor, v: Tensor, scales: tuple[Tensor | None, ...] = (), *, interpreter: bool = True
) -> None:
    """Operands of attention: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), H a multiple of H_kv.

    `scales`: where float8 is allowed, one of q, k and v each, of shape (), for float8; None for others.
    `interpreter`: the kernel runs in Triton's interpreter too (Gluon has none). Raises: ValueError.
    """
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {tuple(q.shape)}")
    B, H, _, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(
            f"attention: q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D}); got {tuple(k.shape)}"
        )
    H_kv = k.shape[1]
    if v.shape != k.shape:
        raise ValueError(
            f"attention: k is (B, H_kv, S_k, D)={tuple(k.shape)}, so v must be {tuple(k.shape)}; got {tuple(v.shape)}"
        )
    if H != 0 and (H_kv == 0 or H % H_kv != 0):
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={H_kv}")
    _check_dtypes("attention", ("q", "k", "v"), (q, k, v), float8=bool(scales))
    _check_devices("attention", ("q", "k", "v"), (q, k, v))
    if scales:
        _check_scales("attention", ("q", "k", "v"), q, scales)
    _check_runs("attention", "q", q, interpreter=interpreter)


def check_attention_grad(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, interpreter: bool = True) -> None:
    """Operands of attention, and the gradient of its output, of the shape of q. Raises: ValueError."""
    check_attention(q, k, v, interpreter=interpreter)
    if do.shape != q.shape:
        shape = tuple(q.shape)
        raise ValueError(f"attention_grad: q is (B, H, S_q, D)={shape}, so do must be {shape}; got {tuple(do.shape)}")
    _check_dtypes("attention_grad", ("q", "do"), (q, do))
    _check_devices("attention_grad", ("q", "do"), (q, do))


def check_multi_head_attention(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, heads: int, *, interpreter: bool = True
) -> None:
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
    _check_dtypes("multi_head_attention", ("x", "w_qkv", "w_out"), (x, w_qkv, w_out))
    _check_devices("multi_head_attention", ("x", "w_qkv", "w_out"), (x, w_qkv, w_out))
    _check_runs("multi_head_attention", "x", x, interpreter=interpreter)


def check_conv2d(
    x: Tensor, weight: Tensor, *, stride: int, padding: int, precision: str, interpreter: bool = True
) -> tuple[int, int]:
    """Images (N, H, W, C), and weights (K, R, S, C) of a window that fits into a padded image. Raises: ValueError.

    Returns: rows and columns of the output.
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
    _check_dtypes("conv2d", ("x", "weight"), (x, weight))
    _check_devices("conv2d", ("x", "weight"), (x, weight))
    _check_runs("conv2d", "x", x, interpreter=interpreter)
    if precision not in (("ieee", "tf32") if x.dtype == torch.float32 else ("ieee",)):
        raise ValueError(f'conv2d: precision must be "ieee", or "tf32" for float32; got "{precision}" for {x.dtype}')
    (_, H, W, _), (_, R, S, _) = x.shape, weight.shape
    return (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1


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
    _check_dtypes("lstm", ("x", *others), (x, *others.values()))
    _check_devices("lstm", ("x", *others), (x, *others.values()))
    _check_runs("lstm", "x", x)
    return T, B, I, H


def check_head(D: int, head_dims: tuple[int, ...], sm_scale: float | None) -> None:
    """D is one of head_dims, and sm_scale is not negative. Raises: NotImplementedError."""
    if D not in head_dims:
        raise NotImplementedError(f"attention: D must be one of {head_dims}; got {D}")
    if sm_scale is not None and sm_scale < 0:
        raise NotImplementedError(f"attention: sm_scale must not be negative; got {sm_scale}")


def _check_plain(operation: str, name: str, x: Tensor) -> None:
    """x holds its numbers as they are, and no gradient is expected. Raises: NotImplementedError."""
    if x.is_neg():
        raise NotImplementedError(f"{operation}: {name} has torch's negative bit set; pass {name}.resolve_neg()")
    if x.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"{operation}: {name} requires a gradient, and this kernel has no backward pass; "
            f"pass {name}.detach(), or use torch.no_grad()"
        )


def _check_dtypes(operation: str, names: tuple[str, ...], tensors: tuple[Tensor, ...], *, float8: bool = False) -> None:
    """All have the dtype of the first, which is one of DTYPES, or float8 where that is allowed, and are plain."""
    dtype = tensors[0].dtype
    if dtype not in DTYPES and not (float8 and dtype == FLOAT8):
        expected = "float32, float16, bfloat16 or float8_e4m3fn" if float8 else "float32, float16 or bfloat16"
        raise ValueError(f"{operation}: {names[0]} must be {expected}; got {dtype}")
    for name, other in zip(names, tensors, strict=True):
        if other.dtype != dtype:
            raise ValueError(f"{operation}: {names[0]} is {dtype}, so {name} must be {dtype}; got {other.dtype}")
        _check_plain(operation, name, other)


def _check_scales(operation: str, names: tuple[str, ...], x: Tensor, scales: tuple[Tensor | None, ...]) -> None:
    """A scale of shape () for each operand if x, the first, is float8; None otherwise."""
    expected = (torch.float32, (), x.device) if x.dtype == FLOAT8 else None
    for name, scale in zip(names, scales, strict=True):
        found = None if scale is None else (scale.dtype, tuple(scale.shape), scale.device)
        if found != expected:
            raise ValueError(f"{operation}: {names[0]} is {x.dtype}, so scale_{name} must be {expected}; got {found}")
        if scale is not None:
            _check_plain(operation, f"scale_{name}", scale)


def _check_devices(operation: str, names: tuple[str, ...], tensors: tuple[Tensor, ...]) -> None:
    """All are on the device of the first."""
    device = tensors[0].device
    for name, other in zip(names, tensors, strict=True):
        if other.device != device:
            raise ValueError(
                f"{operation}: {names[0]} is on {device}, so {name} must be on {device}; got {other.device}"
            )


def _check_runs(operation: str, name: str, x: Tensor, *, interpreter: bool = True) -> None:
    """x is on a GPU, or on a CPU in the interpreter."""
    if x.is_cuda or (interpreter and INTERPRET):
        return
    remedy = "or set TRITON_INTERPRET=1 before importing this module" if interpreter else "Gluon has no interpreter"
    raise ValueError(f"{operation}: {name} is on {x.device}; pass CUDA tensors, {remedy}")
