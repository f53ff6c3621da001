"""The contract of each operation: shapes, dtypes, devices, precisions, scales and options of its arguments.

Each function raises ValueError for arguments that break the contract, and refuses by `check_arrays` what the folder's
framework does not cover. Errors name the argument, the expected and the given value:
`matmul: a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)`.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/contract.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .operands import FLOAT64, Array, check_arrays, check_devices, check_dims, check_shape, dtype_name, text_of

ACTIVATIONS = ("silu", "gelu_tanh")
LARGEST_CODE = {"float8_e4m3fn": 448.0, "int8": 127.0}
"""Types of codes, each with its largest code: that of the largest number of a group."""
LEAST_SCALE = 2.0**-126
"""The smallest scale of a group: the smallest normal number of float32."""


def working(x: Array) -> str:
    """Returns the type in which operands like x are computed: float64 for float64, else float32."""
    return FLOAT64 if dtype_name(x.dtype) == FLOAT64 else "float32"


def check_add(operation: str, a: Array, b: Array, *, ndim: int, float64: bool = False) -> tuple[int, ...]:
    """Checks the operands of an addition, of `ndim` dimensions: 1 or 2. Returns their shape."""
    symbols = ("N",) if ndim == 1 else ("M", "N")
    shape = check_dims(operation, "a", a, symbols)
    check_shape(operation, ("a", shape, symbols), "b", b, shape)
    check_arrays(operation, {"a": a, "b": b}, float64=float64)
    return shape


def check_elementwise(operation: str, x: Array, *, float64: bool = False) -> None:
    """Checks the operand of an elementwise operation, of any shape."""
    check_arrays(operation, {"x": x}, float64=float64)


def check_all_reduce(operation: str, x: Array) -> int:
    """Checks the vector that each rank adds. Returns its length."""
    (N,) = check_dims(operation, "x", x, ("N",))
    check_arrays(operation, {"x": x})
    return N


def check_rows(operation: str, x: Array, *, float64: bool = False) -> tuple[int, ...]:
    """Checks the matrix of an operation on rows. Returns M and N."""
    shape = check_dims(operation, "x", x, ("M", "N"))
    check_arrays(operation, {"x": x}, float64=float64)
    return shape


def check_codes(operation: str, N: int, *, group: str, to: str) -> tuple[int, int]:
    """Checks the groups of a matrix of N columns and the type of its codes. Returns the rows and columns of a group."""
    groups = {"row": (1, max(N, 1)), "128": (1, 128), "128x128": (128, 128)}
    if group not in groups:
        raise ValueError(f"{operation}: group must be {' or '.join(map(repr, groups))}; got {group!r}")
    if to not in LARGEST_CODE:
        raise ValueError(f"{operation}: to must be {' or '.join(map(repr, LARGEST_CODE))}; got {to!r}")
    return groups[group]


def check_quantize(x: Array, *, group: str, to: str) -> tuple[int, int]:
    """Checks a matrix (M, N), its groups and the type of its codes. Returns the rows and columns of a group."""
    return check_codes("quantize", check_rows("quantize", x)[1], group=group, to=to)


def check_top_k(x: Array, k: int) -> tuple[int, int]:
    """Checks a matrix (M, N) and the number of elements that are selected from each row. Returns M and N."""
    M, N = check_rows("top_k", x)
    if not 1 <= k <= N:
        raise ValueError(f"top_k: k must be from 1 to N={N}; got {k}")
    return M, N


def check_norm(operation: str, x: Array, *, float64: bool = False, **vectors: Array) -> tuple[int, ...]:
    """Checks the matrix of a normalization, and its weight and bias vectors (N,). Returns M and N."""
    shape = check_dims(operation, "x", x, ("M", "N"))
    for name, vector in vectors.items():
        check_shape(operation, ("x", shape, ("M", "N")), name, vector, shape[1:])
    check_arrays(operation, {"x": x, **vectors}, float64=float64)
    return shape


def check_rope(q: Array, k: Array, cos: Array, sin: Array, *, layout: str) -> tuple[int, int, int, int, int]:
    """Checks queries (B, S, H, D) and keys (B, S, H_kv, D), D even, cos and sin (S, D/2), and the layout of pairs.

    Returns B, S, H, H_kv and D.
    """
    B, S, H, D = shape = check_dims("rope", "q", q, ("B", "S", "H", "D"))
    of_q = ("q", shape, ("B", "S", "H", "D"))
    check_shape("rope", of_q, "k", k, (B, S, "H_kv", D))
    if D % 2:
        raise ValueError(f"rope: D must be even; got q (B, S, H, D)={tuple(shape)}")
    check_shape("rope", of_q, "cos", cos, (S, D // 2))
    check_shape("rope", of_q, "sin", sin, (S, D // 2))
    if layout not in ("halves", "pairs"):
        raise ValueError(f"rope: layout must be 'halves' or 'pairs'; got {layout!r}")
    check_arrays("rope", {"q": q, "k": k, "cos": cos, "sin": sin})
    return B, S, H, k.shape[2], D


def check_gated(operation: str, a: Array, b: Array, dy: Array | None = None, *, activation: str) -> tuple[int, int]:
    """Checks two matrices of one shape, the gradient of their product if there is one, and the activation.

    Returns M and N.
    """
    M, N = shape = check_dims(operation, "a", a, ("M", "N"))
    arrays = {"a": a, "b": b} | ({} if dy is None else {"dy": dy})
    for name, other in arrays.items():
        check_shape(operation, ("a", shape, ("M", "N")), name, other, shape)
    if activation not in ACTIVATIONS:
        raise ValueError(f"{operation}: activation must be {' or '.join(map(repr, ACTIVATIONS))}; got {activation!r}")
    check_arrays(operation, arrays)
    return M, N


def check_norm_pair(operation: str, x: Array, weight: Array, **other: Array) -> tuple[int, ...]:
    """Checks the matrix of a normalization, its weight (N,), and another matrix (M, N), by name. Returns M and N."""
    shape = check_dims(operation, "x", x, ("M", "N"))
    of_x = ("x", shape, ("M", "N"))
    for name, matrix in other.items():
        check_shape(operation, of_x, name, matrix, shape)
    check_shape(operation, of_x, "weight", weight, shape[1:])
    check_arrays(operation, {"x": x, "weight": weight, **other})
    return shape


def check_sum(operation: str, x: Array, axis: int | None, *, float64: bool = False) -> tuple[int, ...]:
    """Checks a matrix, and the axis that is summed: 0, 1 or None for both. Returns M and N."""
    shape = check_rows(operation, x, float64=float64)
    if axis not in (None, 0, 1):
        raise ValueError(f"{operation}: axis must be None, 0 or 1; got {axis!r}")
    return shape


def check_matmul(
    a: Array,
    b: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    precision: str,
    float8: bool = False,
    float64: bool = False,
) -> tuple[int, int, int]:
    """Checks the operands of a matrix product.

    Args:
        a, b: (M, K) and (K, N).
        scale_a, scale_b: float32 of shape () for float8, else None.
        precision: "ieee", or "tf32" for float32; "promoted" or "fast" for float8.
        float8, float64: whether the kernel takes that type.

    Returns:
        M, N and K.
    """
    M, K = shape = check_dims("matmul", "a", a, ("M", "K"))
    check_shape("matmul", ("a", shape, ("M", "K")), "b", b, (K, "N"))
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    check_arrays("matmul", {"a": a, "b": b}, scales, precision=precision, float8=float8, float64=float64)
    return M, b.shape[1], K


def check_split_matmul(x: Array, w: Array, ranks: int, *, precision: str) -> tuple[int, int, int]:
    """Checks this rank's operands of a product whose K is split over `ranks`: x (ranks M, K) and w (K, N).

    Returns M, N and K.
    """
    rows, N, K = check_matmul(x, w, precision=precision)
    if rows % ranks:
        raise ValueError(f"matmul_reduce_scatter: the rows of x must be a multiple of {ranks} ranks; got {rows}")
    return rows // ranks, N, K


def check_linear(
    operation: str,
    x: Array,
    weight: Array,
    bias: Array,
    dy: Array | None = None,
    *,
    precision: str = "ieee",
    float64: bool = False,
) -> tuple[int, int, int]:
    """Checks a linear layer: x (M, K), weight (N, K), bias (N,), and dy (M, N) if there is a gradient of its output.

    Returns M, N and K.
    """
    M, K = shape = check_dims(operation, "x", x, ("M", "K"))
    check_shape(operation, ("x", shape, ("M", "K")), "weight", weight, ("N", K))
    N = weight.shape[0]
    check_shape(operation, ("weight", (N, K), ("N", "K")), "bias", bias, (N,))
    arrays = {"x": x, "weight": weight, "bias": bias}
    if dy is not None:
        check_shape(operation, ("the output", (M, N), ("M", "N")), "dy", dy, (M, N))
        arrays["dy"] = dy
    check_arrays(operation, arrays, precision=precision, float64=float64)
    return M, N, K


def check_attention(
    q: Array, k: Array, v: Array, scales: tuple[Array | None, ...] = (), *, float64: bool = False
) -> tuple[int, int, int, int, int, int]:
    """Checks q (B, H, S_q, D), k and v (B, H_kv, S_k, D), H a multiple of H_kv.

    scales: of q, k and v, if the kernel takes float8: float32 of shape () for float8, else None. Returns B, H, H_kv,
    S_q, S_k and D.
    """
    sizes = _check_heads("attention", q, k, v)
    named = dict(zip(("scale_q", "scale_k", "scale_v"), scales, strict=True)) if scales else {}
    check_arrays("attention", {"q": q, "k": k, "v": v}, named, float8=bool(scales), float64=float64)
    return sizes


def check_window(operation: str, window: int | None, causal: bool, S_k: int) -> int:
    """Checks the number of keys, its own the last, that a query sees under a causal mask. Returns 0 for all keys."""
    if window is None:
        return 0
    if window < 1 or not causal:
        raise ValueError(f"{operation}: window must be at least 1, with causal=True; got {window}, causal={causal}")
    return window if window < S_k else 0


def check_ring_attention(q: Array, k: Array, v: Array) -> tuple[int, int, int, int, int]:
    """Checks this rank's operands of attention over a split sequence: q (B, H, S, D), k and v (B, H_kv, S, D).

    Returns B, H, H_kv, S and D.
    """
    B, H, H_kv, S, S_k, D = _check_heads("ring_attention", q, k, v)
    if S_k != S:
        raise ValueError(f"ring_attention: q, k and v must have the same number of rows; got {S} of q and {S_k} of k")
    check_arrays("ring_attention", {"q": q, "k": k, "v": v})
    return B, H, H_kv, S, D


def check_attention_grad(
    q: Array, k: Array, v: Array, do: Array, scales: tuple[Array | None, ...] = (), *, float64: bool = False
) -> tuple[int, int, int, int, int, int]:
    """Checks the operands of attention, the gradient of its output, of the shape of q, and scales as for attention.

    Returns B, H, H_kv, S_q, S_k and D.
    """
    sizes = _check_heads("attention_grad", q, k, v)
    check_shape("attention_grad", ("q", q.shape, ("B", "H", "S_q", "D")), "do", do, q.shape)
    arrays = {"q": q, "k": k, "v": v, "do": do}
    named = {f"scale_{name}": scale for name, scale in zip(arrays, scales, strict=bool(scales))}
    check_arrays("attention_grad", arrays, named, float8=bool(scales), float64=float64)
    return sizes


def check_multi_head_attention(
    x: Array, w_qkv: Array, w_out: Array, heads: int, *, float64: bool = False
) -> tuple[int, int, int]:
    """Checks a layer of attention: x (B, S, E), w_qkv (3 E, E), w_out (E, E), E a multiple of heads.

    Returns B, S and E.
    """
    operation = "multi_head_attention"
    B, S, E = shape = check_dims(operation, "x", x, ("B", "S", "E"))
    given = ("x", shape, ("B", "S", "E"))
    check_shape(operation, given, "w_qkv", w_qkv, (3 * E, E))
    check_shape(operation, given, "w_out", w_out, (E, E))
    if heads < 1 or E % heads != 0:
        raise ValueError(f"{operation}: E must be a multiple of heads; got E={E}, heads={heads}")
    check_arrays(operation, {"x": x, "w_qkv": w_qkv, "w_out": w_out}, float64=float64)
    return B, S, E


def check_conv2d(
    x: Array, weight: Array, *, stride: int, padding: int, precision: str, float64: bool = False
) -> tuple[int, int]:
    """Checks images (N, H, W, C), and weights (K, R, S, C) of a window that fits into a padded image.

    Returns rows and columns of the output.
    """
    _, H, W, C = shape = check_dims("conv2d", "x", x, ("N", "H", "W", "C"))
    check_shape("conv2d", ("x", shape, ("N", "H", "W", "C")), "weight", weight, ("K", "R", "S", C))
    if stride < 1 or padding < 0:
        raise ValueError(f"conv2d: stride must be at least 1 and padding at least 0; got {stride} and {padding}")
    _, R, S, _ = weight.shape
    for name, taps, size in (("R", R, H), ("S", S, W)):
        if not 1 <= taps <= size + 2 * padding:
            limit = f"{name} must be from 1 to {size} + 2 * {padding}, the padded size of x"
            raise ValueError(f"conv2d: {limit}; got weight (K, R, S, C)={tuple(weight.shape)}")
    check_arrays("conv2d", {"x": x, "weight": weight}, precision=precision, float64=float64)
    return (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1


def check_max_pool2d(x: Array, *, window: tuple[int, int], stride: int, padding: int) -> tuple[int, int]:
    """Checks images (N, H, W, C), and a window (R, S) that holds at least one pixel wherever it lies.

    Returns rows and columns of the output.
    """
    return _check_pooling("max_pool2d", x, {"x": x}, window, stride, padding)


def check_max_pool2d_grad(
    x: Array, dy: Array, *, window: tuple[int, int], stride: int, padding: int
) -> tuple[int, int]:
    """Checks images (N, H, W, C), a window as `check_max_pool2d` does, and the gradient of its output (N, P, Q, C).

    Returns P and Q.
    """
    operation = "max_pool2d_grad"
    P, Q = _check_pooling(operation, x, {"x": x, "dy": dy}, window, stride, padding)
    N, _, _, C = x.shape
    check_shape(operation, ("the output", (N, P, Q, C), ("N", "P", "Q", "C")), "dy", dy, (N, P, Q, C))
    return P, Q


def check_adam_step(param: Array, grad: Array, m: Array, v: Array, *, step: int) -> tuple[int, ...]:
    """Checks parameters and their gradient, of any shape and one dtype, and their moments in float32; step from 1.

    Returns their shape.
    """
    operation = "adam_step"
    shape: tuple[int, ...] = param.shape
    for name, array in (("grad", grad), ("m", m), ("v", v)):
        if array.shape != shape:
            raise ValueError(
                f"{operation}: param is {text_of(shape)}, so {name} must be too; got {text_of(array.shape)}"
            )
    for name, array in (("m", m), ("v", v)):
        if dtype_name(array.dtype) != "float32":
            raise ValueError(f"{operation}: {name} must be float32; got {dtype_name(array.dtype)}")
    if step < 1:
        raise ValueError(f"{operation}: step must be at least 1; got {step}")
    check_arrays(operation, {"param": param, "grad": grad})
    check_arrays(operation, {"m": m, "v": v})
    check_devices(operation, "param", param, {"m": m})
    return shape


def check_lstm(
    x: Array,
    w_ih: Array,
    w_hh: Array,
    bias: Array,
    h0: Array,
    c0: Array,
    w_ih_upper: Array | None = None,
    *,
    float64: bool = False,
) -> tuple[int, int, int, int]:
    """Checks an LSTM layer: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H).

    With w_ih_upper (L - 1, 4H, H) there are L layers: w_hh (L, 4H, H), bias (L, 4H), h0 and c0 (L, B, H).
    Returns T, B, I and H.
    """
    T, B, I = check_dims("lstm", "x", x, ("T", "B", "I"))  # noqa: E741
    upper = () if w_ih_upper is None else check_dims("lstm", "w_ih_upper", w_ih_upper, ("L - 1", "4 H", "H"))[:1]
    layers, label = tuple(size + 1 for size in upper), ("L",) * len(upper)  # empty for one layer
    of_x = ("x", (T, B, I), ("T", "B", "I"))
    check_shape("lstm", of_x, "h0", h0, (*layers, B, "H"))
    H = h0.shape[-1]
    of_h0 = ("h0", (*layers, B, H), (*label, "B", "H"))
    check_shape("lstm", of_h0, "c0", c0, (*layers, B, H))
    check_shape("lstm", of_x, "w_ih", w_ih, ("4 H", I))
    check_shape("lstm", of_h0, "w_ih", w_ih, (4 * H, "I"))
    check_shape("lstm", of_h0, "w_hh", w_hh, (*layers, 4 * H, H))
    check_shape("lstm", of_h0, "bias", bias, (*layers, 4 * H))
    arrays = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "bias": bias, "h0": h0, "c0": c0}
    if w_ih_upper is not None:
        check_shape("lstm", of_h0, "w_ih_upper", w_ih_upper, (*upper, 4 * H, H))
        arrays["w_ih_upper"] = w_ih_upper
    check_arrays("lstm", arrays, float64=float64)
    return T, B, I, H


def _check_pooling(
    operation: str, x: Array, arrays: dict[str, Array], window: tuple[int, int], stride: int, padding: int
) -> tuple[int, int]:
    """Checks the images and the window of a pooling, and all its arrays. Returns rows and columns of the output."""
    _, H, W, _ = shape = check_dims(operation, "x", x, ("N", "H", "W", "C"))
    R, S = window
    if stride < 1 or not 0 <= padding <= min(R, S) // 2:
        limit = "stride must be at least 1 and padding from 0 to half of the window"
        raise ValueError(f"{operation}: {limit}; got stride={stride}, padding={padding}, window={(R, S)}")
    for name, taps, size in (("R", R, H), ("S", S, W)):
        if size < 1 or not 1 <= taps <= size + 2 * padding:
            limit = f"{name} must be from 1 to {size} + 2 * {padding}, the padded size of x, and x must have pixels"
            raise ValueError(f"{operation}: {limit}; got x {tuple(shape)}, window (R, S)={(R, S)}")
    check_arrays(operation, arrays)
    return (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1


def _check_heads(operation: str, q: Array, k: Array, v: Array) -> tuple[int, int, int, int, int, int]:
    """Checks the shapes of q, k and v. Returns B, H, H_kv, S_q, S_k and D."""
    B, H, S_q, D = shape = check_dims(operation, "q", q, ("B", "H", "S_q", "D"))
    check_shape(operation, ("q", shape, ("B", "H", "S_q", "D")), "k", k, (B, "H_kv", "S_k", D))
    _, H_kv, S_k, _ = k.shape
    check_shape(operation, ("k", k.shape, ("B", "H_kv", "S_k", "D")), "v", v, k.shape)
    if H % H_kv != 0 if H_kv > 0 else H > 0:
        raise ValueError(f"{operation}: H must be a multiple of H_kv; got H={H}, H_kv={H_kv}")
    return B, H, H_kv, S_q, S_k, D
