"""Argument checks of the launchers. Their errors name the argument, what is expected, and what was given."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from cuda_ref import build

FLOATS = tuple(build.DTYPES)
FLOAT8 = torch.float8_e4m3fn
PRECISIONS = {
    torch.float32: ("ieee", "tf32"),
    torch.float16: ("ieee",),
    torch.bfloat16: ("ieee",),
    FLOAT8: ("promoted", "fast"),
}


def check_dims(operation: str, name: str, x: Tensor, symbols: Sequence[str]) -> None:
    """Checks that x has one dimension for each symbol, such as ("M", "K"). Raises ValueError."""
    if x.dim() != len(symbols):
        raise ValueError(f"{operation}: {name} must be {_tuple(symbols)}; got {tuple(x.shape)}")


def check_same_shape(operation: str, names: Sequence[str], x: Tensor, y: Tensor, symbols: Sequence[str]) -> None:
    """Checks that y has the shape of x. Raises ValueError."""
    if y.shape != x.shape:
        raise ValueError(
            f"{operation}: {names[0]} is {_tuple(symbols)}={tuple(x.shape)}, so {names[1]} must be too; "
            f"got {tuple(y.shape)}"
        )


def check_dtypes_devices(
    operation: str, names: Sequence[str], tensors: Sequence[Tensor], allowed: Collection[torch.dtype] = FLOATS
) -> None:
    """Checks that all tensors have the dtype of the first one, an allowed one, and its device, and are plain.

    Raises ValueError; NotImplementedError for tensors that check_plain refuses.
    """
    dtype, device = tensors[0].dtype, tensors[0].device
    if dtype not in allowed:
        raise ValueError(f"{operation}: {names[0]} must be {_alternatives(allowed)}; got {dtype}")
    for x in tensors[1:]:
        if x.dtype != dtype:
            found = " and ".join(str(each.dtype) for each in tensors[1:])
            others = " and ".join(names[1:])
            raise ValueError(f"{operation}: {names[0]} is {dtype}, so {others} must be too; got {found}")
    for x in tensors[1:]:
        if x.device != device:
            found = " and ".join(str(each.device) for each in tensors[1:])
            others = " and ".join(names[1:])
            raise ValueError(f"{operation}: {names[0]} is on {device}, so {others} must be too; got {found}")
    for name, x in zip(names, tensors, strict=True):
        check_plain(operation, name, x)


def check_plain(operation: str, name: str, x: Tensor) -> None:
    """Checks that x holds its numbers as they are, and that no gradient is expected. Raises NotImplementedError."""
    if x.is_neg():
        raise NotImplementedError(f"{operation}: {name} has torch's negative bit set; pass {name}.resolve_neg()")
    if x.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"{operation}: {name} requires a gradient, and this kernel has no backward pass; "
            f"pass {name}.detach(), or use torch.no_grad()"
        )


def check_addition(operation: str, a: Tensor, b: Tensor, symbols: Sequence[str]) -> None:
    """Checks two operands of the same shape, dtype and device. Raises ValueError."""
    check_dims(operation, "a", a, symbols)
    check_same_shape(operation, ("a", "b"), a, b, symbols)
    check_dtypes_devices(operation, ("a", "b"), (a, b))


def check_norm(operation: str, x: Tensor, **vectors: Tensor) -> None:
    """Checks a matrix (M, N), and vectors (N,) that its rows are multiplied by or added to. Raises ValueError."""
    check_dims(operation, "x", x, ("M", "N"))
    for name, vector in vectors.items():
        if vector.shape != x.shape[1:]:
            raise ValueError(
                f"{operation}: x is (M, N)={tuple(x.shape)}, so {name} must be {tuple(x.shape[1:])}; "
                f"got {tuple(vector.shape)}"
            )
    check_dtypes_devices(operation, ("x", *vectors), (x, *vectors.values()))


def check_sum(operation: str, x: Tensor, axis: int | None) -> None:
    """A matrix, and the axis that is summed: 0, 1 or None for both. Raises: ValueError."""
    check_dims(operation, "x", x, ("M", "N"))
    check_dtypes_devices(operation, ("x",), (x,))
    if axis not in (None, 0, 1):
        raise ValueError(f"{operation}: axis must be None, 0 or 1; got {axis!r}")


def check_matmul(
    a: Tensor, b: Tensor, precision: str, allowed: Collection[torch.dtype] = FLOATS
) -> tuple[int, int, int]:
    """Checks shapes, dtypes, precision and devices of a matmul.

    Args:
        a, b: the operands, (M, K) and (K, N).
        precision: "ieee", or "tf32" for float32; "promoted" or "fast" for float8.
        allowed: dtypes of the operands.

    Returns:
        M, N and K.

    Raises:
        ValueError: for arguments that do not fit together.
    """
    check_dims("matmul", "a", a, ("M", "K"))
    M, K = a.shape
    if b.dim() != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    check_dtypes_devices("matmul", ("a", "b"), (a, b), allowed)
    if precision not in PRECISIONS[a.dtype]:
        expected = '"promoted" or "fast" for float8' if a.dtype == FLOAT8 else '"ieee", or "tf32" for float32'
        raise ValueError(f'matmul: precision must be {expected}; got "{precision}" for {a.dtype}')
    return M, N, K


def check_linear(
    operation: str, x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor | None = None, *, precision: str = "ieee"
) -> tuple[int, int, int]:
    """Checks a linear layer: x (M, K), weight (N, K), bias (N,), and dy (M, N), if there is a gradient of its output.

    Returns: M, N and K. Raises ValueError.
    """
    check_dims(operation, "x", x, ("M", "K"))
    M, K = x.shape
    if weight.dim() != 2 or weight.shape[1] != K:
        raise ValueError(f"{operation}: x is (M, K)={(M, K)}, so weight must be (N, {K}); got {tuple(weight.shape)}")
    N = weight.shape[0]
    if bias.shape != (N,):
        raise ValueError(f"{operation}: weight is (N, K)={(N, K)}, so bias must be ({N},); got {tuple(bias.shape)}")
    if dy is not None and dy.shape != (M, N):
        raise ValueError(f"{operation}: the output is (M, N)={(M, N)}, so dy must be too; got {tuple(dy.shape)}")
    names, tensors = ("x", "weight", "bias", "dy"), (x, weight, bias, dy)
    check_dtypes_devices(operation, names if dy is not None else names[:3], [x for x in tensors if x is not None])
    if precision not in PRECISIONS[x.dtype]:
        raise ValueError(f'{operation}: precision must be "ieee", or "tf32" for float32; got "{precision}"')
    return M, N, K


def check_sizes(sizes: tuple[int, int, int], log2_limit: int) -> None:
    """Checks that M, N and K are at most 2^log2_limit. Raises NotImplementedError."""
    if max(sizes) > 2**log2_limit:
        raise NotImplementedError(f"matmul: M, N and K must be at most 2^{log2_limit}; got {sizes}")


def check_16_bit(a: Tensor) -> None:
    """Checks that the operands, which check_matmul has accepted, are not float32. Raises NotImplementedError."""
    if a.dtype == torch.float32:
        raise NotImplementedError("matmul: written for float16 and bfloat16; got torch.float32")


def check_float8_scales(a: Tensor, scale_a: Tensor | None, scale_b: Tensor | None) -> None:
    """Checks that float8 operands have float32 scales of shape (), and others none. Raises ValueError."""
    expected = (torch.float32, (), a.device) if a.dtype == FLOAT8 else None
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.dtype, tuple(scale.shape), scale.device)
        if found != expected:
            raise ValueError(f"matmul: a is {a.dtype}, so {name} must be {expected}; got {found}")
        if scale is not None:
            check_plain("matmul", name, scale)


def tma_layout(name: str, x: Tensor, k_dim: int, k_major_only: bool = False) -> tuple[bool, int]:
    """How TMA copies an operand of a matmul.

    Args:
        name: of the operand, for the error.
        x: the operand, 2-dimensional.
        k_dim: its dimension along K: 1 of a, 0 of b.
        k_major_only: whether the kernel refuses an MN-major operand.

    Returns:
        Whether x is MN-major (contiguous across K), and the stride of its other dimension in elements.

    Raises:
        NotImplementedError: unless one dimension is contiguous, the stride of the other one is a multiple of 16 bytes,
            and the first element is at a multiple of 16 bytes.
    """
    found = find_tma_layout(x, k_dim, k_major_only)
    if found is not None:
        return found
    align = 16 // x.element_size()
    contiguous = "along K" if k_major_only else "in one dimension"
    raise NotImplementedError(
        f"matmul: TMA needs {name} contiguous {contiguous}, the other stride a multiple of {align} elements, and the "
        "first element at a multiple of 16 bytes; "
        f"got strides {x.stride()} at an address that is {x.data_ptr() % 16} beyond one"
    )


def find_tma_layout(x: Tensor, k_dim: int, k_major_only: bool = False) -> tuple[bool, int] | None:
    """The result of tma_layout; None where it raises."""
    align = 16 // x.element_size()
    for mn_major in (False,) if k_major_only else (False, True):
        inner = 1 - k_dim if mn_major else k_dim
        size, stride = x.shape[inner], x.stride(1 - inner)
        if x.shape[1 - inner] == 1:  # a single row: its stride has no effect
            stride = -(-size // align) * align
        if (x.stride(inner) == 1 or size == 1) and stride % align == 0 and stride >= size and x.data_ptr() % 16 == 0:
            return mn_major, stride
    return None


def find_row_layout(x: Tensor, k_dim: int) -> tuple[bool, int] | None:
    """The same for rows at any address: None unless one dimension is contiguous."""
    for inner in (k_dim, 1 - k_dim):
        if x.stride(inner) == 1 or x.shape[inner] == 1:
            return inner != k_dim, 0 if x.shape[1 - inner] == 1 else x.stride(1 - inner)
    return None


def check_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int, int, int, int, int]:
    """Checks shapes, dtypes and devices of an attention.

    Args:
        q: (B, H, S_q, D).
        k, v: (B, H_kv, S_k, D), H a multiple of H_kv.

    Returns:
        B, H, H_kv, S_q, S_k and D.

    Raises:
        ValueError: for arguments that do not fit together.
    """
    check_dims("attention", "q", q, ("B", "H", "S_q", "D"))
    B, H, S_q, D = q.shape
    if k.dim() != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(
            f"attention: q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D}); got {tuple(k.shape)}"
        )
    _, H_kv, S_k, _ = k.shape
    check_same_shape("attention", ("k", "v"), k, v, ("B", "H_kv", "S_k", "D"))
    if H % H_kv != 0 if H_kv > 0 else H > 0:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={H_kv}")
    check_dtypes_devices("attention", ("q", "k", "v"), (q, k, v))
    return B, H, H_kv, S_q, S_k, D


def check_multi_head_attention(x: Tensor, w_qkv: Tensor, w_out: Tensor, heads: int) -> None:
    """Operands of a layer: x (B, S, E), w_qkv (3 E, E), w_out (E, E), E a multiple of heads. Raises: ValueError."""
    check_dims("multi_head_attention", "x", x, ("B", "S", "E"))
    E = x.shape[2]
    for name, w, rows in (("w_qkv", w_qkv, 3 * E), ("w_out", w_out, E)):
        if w.shape != (rows, E):
            raise ValueError(
                f"multi_head_attention: x is (B, S, E)={tuple(x.shape)}, so {name} must be {(rows, E)}; "
                f"got {tuple(w.shape)}"
            )
    if heads < 1 or E % heads != 0:
        raise ValueError(f"multi_head_attention: E must be a multiple of heads; got E={E}, heads={heads}")
    check_dtypes_devices("multi_head_attention", ("x", "w_qkv", "w_out"), (x, w_qkv, w_out))


def check_attention_grad(q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> tuple[int, int, int, int, int, int]:
    """Checks the operands of an attention and the gradient of its output; see `check_attention`. Raises ValueError."""
    sizes = check_attention(q, k, v)
    check_same_shape("attention_grad", ("q", "do"), q, do, ("B", "H", "S_q", "D"))
    check_dtypes_devices("attention_grad", ("q", "do"), (q, do))
    return sizes


def check_conv2d(x: Tensor, weight: Tensor, *, stride: int, padding: int, precision: str) -> tuple[int, int]:
    """Checks images (N, H, W, C), and weights (K, R, S, C) of a window that fits into a padded image.

    Returns:
        Rows and columns of the output.

    Raises:
        ValueError: for arguments that do not fit together.
    """
    check_dims("conv2d", "x", x, ("N", "H", "W", "C"))
    if weight.dim() != 4 or weight.shape[3] != x.shape[3]:
        expected = f"x is (N, H, W, C)={tuple(x.shape)}, so weight must be (K, R, S, {x.shape[3]})"
        raise ValueError(f"conv2d: {expected}; got {tuple(weight.shape)}")
    if stride < 1 or padding < 0:
        raise ValueError(f"conv2d: stride must be at least 1 and padding at least 0; got {stride} and {padding}")
    for taps, size in zip(weight.shape[1:3], x.shape[1:3], strict=True):
        if not 1 <= taps <= size + 2 * padding:
            given = f"weight is (K, R, S, C)={tuple(weight.shape)} and padding {padding}"
            raise ValueError(f"conv2d: {given}; R and S must be from 1 to {size} + 2 padding, that of x")
    check_dtypes_devices("conv2d", ("x", "weight"), (x, weight))
    if precision not in PRECISIONS[x.dtype]:
        raise ValueError(f'conv2d: precision must be "ieee", or "tf32" for float32; got "{precision}" for {x.dtype}')
    (_, H, W, _), (_, R, S, _) = x.shape, weight.shape
    return (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1


def check_lstm(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
) -> tuple[int, int, int, int]:
    """Checks the operands of an LSTM layer: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H).

    Returns T, B, I and H. Raises ValueError.
    """
    check_dims("lstm", "x", x, ("T", "B", "I"))
    check_dims("lstm", "h0", h0, ("B", "H"))
    (T, B, I), H = x.shape, h0.shape[1]  # noqa: E741
    wanted = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "bias": (4 * H,), "h0": (B, H), "c0": (B, H)}
    others = {"w_ih": w_ih, "w_hh": w_hh, "bias": bias, "h0": h0, "c0": c0}
    for name, shape in wanted.items():
        if others[name].shape != shape:
            raise ValueError(
                f"lstm: x is (T, B, I)={tuple(x.shape)} and h0 has {H} columns, so {name} must be {shape}; "
                f"got {tuple(others[name].shape)}"
            )
    check_dtypes_devices("lstm", ("x", *others), (x, *others.values()))
    return T, B, I, H


def _tuple(symbols: Sequence[str]) -> str:
    """`(M, K)`, `(N,)`."""
    return f"({', '.join(symbols)}{',' if len(symbols) == 1 else ''})"


def _alternatives(dtypes: Collection[torch.dtype]) -> str:
    """`float32, float16 or bfloat16`."""
    *names, last = (str(each).removeprefix("torch.") for each in dtypes)
    return f"{', '.join(names)} or {last}"
