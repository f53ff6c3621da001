"""Layouts of a product's operands: how TMA, or a kernel that reads rows at any address, copies them."""

from torch import Tensor


def tma_layout(name: str, x: Tensor, k_dim: int, k_major_only: bool = False) -> tuple[bool, int]:
    """The layout in which TMA copies an operand of a matmul.

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
        f"got strides {x.stride()}, the first element {x.data_ptr() % 16} bytes past such a multiple"
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


def operand_layouts(a: Tensor, b: Tensor) -> tuple[list[tuple[bool, int] | None], list[bool]]:
    """The layouts of a (M, K) and b (K, N) for TMA, and whether each is contiguous across K, in its copy if it has one.

    The layout of an operand that must be copied is None. A copy is contiguous as the original is, unless the tensor
    cores need it along K: operands of 8 bits, and one of two of 32 bits, the smaller one if it can be chosen.
    """
    bytes, both = a.element_size(), ((a, 1), (b, 0))
    layouts = [find_tma_layout(x, k_dim, k_major_only=bytes == 1) for x, k_dim in both]
    across = [
        bytes > 1 and (layout[0] if layout is not None else x.stride(k_dim) > x.stride(1 - k_dim))
        for (x, k_dim), layout in zip(both, layouts, strict=True)
    ]
    if bytes == 4 and all(across):
        movable = [i for i in (1, 0) if layouts[i] is None] or [1, 0]
        smallest = min(movable, key=lambda i: both[i][0].numel())
        layouts[smallest], across[smallest] = None, False
    return layouts, across


def find_row_layout(x: Tensor, k_dim: int) -> tuple[bool, int] | None:
    """The layout of an operand whose rows may begin at any address; None unless one dimension is contiguous."""
    for inner in (k_dim, 1 - k_dim):
        if x.stride(inner) == 1 or x.shape[inner] == 1:
            return inner != k_dim, 0 if x.shape[1 - inner] == 1 else x.stride(1 - inner)
    return None
