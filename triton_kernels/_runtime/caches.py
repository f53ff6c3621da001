"""The contract of operations on caches: shapes, dtypes and devices of pages, tables and lengths.

Each function raises ValueError for arguments that break the contract, as those of `contract.py` do. The values of
tables and lengths are not checked, because a check on a GPU would make each call wait for it. A length is from 0 to the
number of slots in a row of the table. Entries of the table beyond a sequence's pages, and slots without a token, may
hold anything.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/caches.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from .operands import FLOAT8, Array, check_arrays, check_devices, check_dims, check_shape, dtype_name


def check_paged_attention(
    q: Array,
    k_pages: Array,
    v_pages: Array,
    table: Array,
    lengths: Array,
    scale_k: Array | None = None,
    scale_v: Array | None = None,
) -> tuple[int, int, int, int, int, int]:
    """Checks q (B, S_q, H, D), the pages (P, page, H_kv, D), a table (B, pages) and lengths (B,), both int32.

    The pages have the dtype of q, or they are float8 with two scales, float32 of shape (). H must be a multiple of
    H_kv, and a page must have a slot. Returns B, S_q, H, H_kv, page and D.
    """
    operation = "paged_attention"
    B, S_q, H, D = check_dims(operation, "q", q, ("B", "S_q", "H", "D"))
    P, page, H_kv, _ = check_dims(operation, "k_pages", k_pages, ("P", "page", "H_kv", "D"))
    given = "q", (B, S_q, H, D), ("B", "S_q", "H", "D")
    check_shape(operation, given, "k_pages", k_pages, ("P", "page", "H_kv", D))
    pages = "k_pages", (P, page, H_kv, D), ("P", "page", "H_kv", "D")
    check_shape(operation, pages, "v_pages", v_pages, (P, page, H_kv, D))
    check_shape(operation, given, "table", table, (B, "pages"))
    check_shape(operation, given, "lengths", lengths, (B,))
    if page == 0:
        raise ValueError(f"{operation}: a page must have at least one slot; got k_pages {tuple(k_pages.shape)}")
    if H % H_kv if H_kv else H:
        raise ValueError(f"{operation}: H must be a multiple of H_kv; got H={H} and H_kv={H_kv}")
    for name, x in (("table", table), ("lengths", lengths)):
        if dtype_name(x.dtype) != "int32":
            raise ValueError(f"{operation}: {name} must be int32; got {dtype_name(x.dtype)}")
    check_devices(operation, "q", q, {"table": table, "lengths": lengths})
    cache, scales = {"k_pages": k_pages, "v_pages": v_pages}, {"scale_k": scale_k, "scale_v": scale_v}
    if dtype_name(k_pages.dtype) == FLOAT8:
        check_arrays(operation, {"q": q})
        check_arrays(operation, cache, scales, float8=True)
        check_devices(operation, "q", q, {"k_pages": k_pages})
    else:
        check_arrays(operation, {"q": q, **cache}, scales)
    return B, S_q, H, H_kv, page, D
