"""Attention in Triton with float32 accuracy from bfloat16 tensor cores.

Adds to `triton/packed`: each float32 number is split into three bfloat16 numbers, and each product into six.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention._rows import LOG2_E, LOWEST
from triton_kernels.attention._softmax import recompute_by_key, row_pointers, tile_of, visible_keys
from triton_kernels.matmul.split import INFINITY, power_of_two, round_to_bfloat16

DETERMINISTIC = True
ARITHMETIC = "6 x bfloat16"
GROUP_BYTES = 2**27  # bytes of keys and values of the heads that run together; few large groups balance the programs
TILES = {  # by the largest D that they suit: three parts of Q and two blocks of K and V fit into shared memory
    128: {"BLOCK_M": 128, "BLOCK_N": 32, "num_warps": 8, "num_stages": 2},
    256: {"BLOCK_M": 64, "BLOCK_N": 16, "num_warps": 4, "num_stages": 2},
}
SPLIT_ELEMENTS, SPLIT_COLUMNS = 4096, 32  # elements of a block that a program splits; columns of a block
if INTERPRET:  # tiles that numpy computes fast
    TILES = {256: {"BLOCK_M": 128, "BLOCK_N": 128}}
    SPLIT_ELEMENTS, SPLIT_COLUMNS = 2**13, 256


@triton.jit
def three_parts(x):
    """Three bfloat16 numbers, as float32, whose sum is x, leading bits first; for infinity and NaN x and zeros."""
    finite = tl.abs(x) < INFINITY
    first = round_to_bfloat16(x)
    truncated = (x.to(tl.int32, bitcast=True) & -0x10000).to(tl.float32, bitcast=True)
    first = tl.where(tl.abs(first) < INFINITY, first, truncated)
    first = tl.where(finite, first, x)
    rest = tl.where(finite, x - first, 0.0)
    second = round_to_bfloat16(rest)
    return first, second, rest - second


@triton.jit
def split_rows_kernel(
    x_ptr, planes_ptr, HEADS, H_kv, ROWS, stride_b, stride_h, stride_s, stride_d,
    G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program splits BLOCK rows of one key head. planes (3, HEADS, ROWS, D): row r is row r // G of head r % G."""
    blocks = tl.cdiv(ROWS, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    rows = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK).to(tl.int64)[:, None]
    offs_d = tl.arange(0, D).to(tl.int64)[None, :]
    inside = rows < ROWS
    x_ptrs = x_ptr + head // H_kv * stride_b + (head % H_kv * G + rows % G) * stride_h + rows // G * stride_s
    x = tl.load(x_ptrs + offs_d * stride_d, mask=inside, other=0.0)  # [BLOCK, D]
    first, second, third = three_parts(x)
    ptrs = planes_ptr + (head * ROWS + rows) * D + offs_d
    plane = tl.full((), D, tl.int64) * HEADS * ROWS
    tl.store(ptrs, first.to(tl.bfloat16), mask=inside)
    tl.store(ptrs + plane, second.to(tl.bfloat16), mask=inside)
    tl.store(ptrs + 2 * plane, third.to(tl.bfloat16), mask=inside)


@triton.jit
def split_columns_kernel(
    x_ptr, planes_ptr, exponents_ptr, HEADS, H_kv, ROWS, stride_b, stride_h, stride_s, stride_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program scales and splits BLOCK_D columns of one head. planes (3, HEADS, ROWS, D); exponents (HEADS, D).

    Each column is scaled by the power of two that brings its largest element to [1, 2): the low parts of small numbers
    stay above the subnormal range, and sums of large ones below infinity. Infinities are not scaled.
    """
    head = (tl.program_id(0) // (D // BLOCK_D)).to(tl.int64)
    offs_d = tl.program_id(0) % (D // BLOCK_D) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    offs_s = tl.arange(0, BLOCK).to(tl.int64)[:, None]
    x_ptrs = x_ptr + head // H_kv * stride_b + head % H_kv * stride_h + offs_s * stride_s
    x_ptrs += offs_d.to(tl.int64) * stride_d
    step = tl.full((), BLOCK, tl.int64) * stride_s
    largest = tl.zeros((1, BLOCK_D), tl.float32)
    ptrs = x_ptrs
    for start in range(0, ROWS, BLOCK):
        size = tl.abs(tl.load(ptrs, mask=offs_s < ROWS - start, other=0.0))
        largest = tl.maximum(largest, tl.max(tl.where(size < INFINITY, size, 0.0), axis=0, keep_dims=True))
        ptrs += step
    subnormal = largest < 2.0**-126
    largest = tl.where(subnormal, largest * 2.0**24, largest)
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) - tl.where(subnormal, 127 + 24, 127)
    exponent = tl.where(largest > 0, exponent, 0)
    tl.store(exponents_ptr + head * D + offs_d, exponent)
    half = (-exponent) >> 1  # two factors: 2^149 is not a float32
    scale, scale_more = power_of_two(half), power_of_two(-exponent - half)

    ptrs = x_ptrs
    planes_ptrs = planes_ptr + (head * ROWS + offs_s) * D + offs_d
    plane = tl.full((), D, tl.int64) * HEADS * ROWS
    for start in range(0, ROWS, BLOCK):
        inside = offs_s < ROWS - start
        first, second, third = three_parts(tl.load(ptrs, mask=inside, other=0.0) * scale * scale_more)
        tl.store(planes_ptrs, first.to(tl.bfloat16), mask=inside)
        tl.store(planes_ptrs + plane, second.to(tl.bfloat16), mask=inside)
        tl.store(planes_ptrs + 2 * plane, third.to(tl.bfloat16), mask=inside)
        ptrs += step
        planes_ptrs += BLOCK * D


@triton.jit
def dot(a, b, acc):
    """acc + a b on tensor cores."""
    return tl.dot(dot_operand(a), dot_operand(b), acc)


@triton.jit
def load_parts(desc, head, HEADS, row, BLOCK: tl.constexpr, D: tl.constexpr):
    """The three parts of BLOCK rows of one head, each [BLOCK, D]; zeros beyond the last row."""
    first = desc.load([head, row, 0]).reshape(BLOCK, D)
    second = desc.load([HEADS + head, row, 0]).reshape(BLOCK, D)
    third = desc.load([2 * HEADS + head, row, 0]).reshape(BLOCK, D)
    return first, second, third


@triton.jit
def add_blocks(
    acc, l_i, m_i, q1, q2, q3, k_desc, v_desc, head, HEADS, start, end, last_key, qk_scale,
    MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Online softmax over keys start to end, as `online_softmax`, with each product computed from three parts.

    x y = x1 y1 + (x1 y2 + x2 y1) + (x1 y3 + x2 y2 + x3 y1) + terms below 2^-24 of x y: six products of bfloat16, each
    exact in float32. Tensor cores truncate their sums towards zero, so they sum only one block at a time, and acc adds
    these sums with rounding to nearest.
    """
    for start_n in range(start, end, BLOCK_N):
        k1, k2, k3 = load_parts(k_desc, head, HEADS, start_n, BLOCK_N, D)
        lower = dot(q1, k3.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
        lower = dot(q3, k1.T, lower)
        lower = dot(q2, k2.T, lower)
        lower = dot(q1, k2.T, lower)
        lower = dot(q2, k1.T, lower)
        leading = dot(q1, k1.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
        qk = tl.fma(leading, 1.0, lower)  # an fma, because the compiler moves a sum into the tensor cores
        qk = tl.where(qk == qk, qk, leading)  # with infinite factors the lower products are inf - inf or inf * 0
        if MASKED:
            qk = tl.where((start_n + tl.arange(0, BLOCK_N))[None, :] <= last_key[:, None], qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
        p = tl.exp2(tl.fma(qk, qk_scale, -m_new[:, None]))
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_new
        p1 = p.to(tl.bfloat16)
        rest = p - p1.to(tl.float32)
        p2 = rest.to(tl.bfloat16)
        p3 = (rest - p2.to(tl.float32)).to(tl.bfloat16)
        v1, v2, v3 = load_parts(v_desc, head, HEADS, start_n, BLOCK_N, D)
        pv = dot(p1, v3, tl.zeros((BLOCK_M, D), tl.float32))
        pv = dot(p3, v1, pv)
        pv = dot(p2, v2, pv)
        pv = dot(p1, v2, pv)
        pv = dot(p2, v1, pv)
        pv = dot(p1, v1, pv)
        acc = tl.fma(acc, alpha[:, None], pv)
    return acc, l_i, m_i


@triton.jit(do_not_specialize=["S_k"])
def attention_split_kernel(
    q_desc, k_desc, v_desc, exponents_ptr, q_ptr, k_ptr, v_ptr, out_ptr,
    HEADS, H_kv, S_q, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and key head, packed as in packed.py.

    The descriptors read the parts of q, k and v; the pointers and strides are those of q, k and v themselves.
    """
    head, start_m = tile_of(S_q * G, HEADS, HEAD_GROUP, BLOCK_M)
    rows = start_m + tl.arange(0, BLOCK_M)
    q1, q2, q3 = load_parts(q_desc, head, HEADS, start_m, BLOCK_M, D)

    last_key, full, end = visible_keys(start_m, S_q, S_k, CAUSAL, G, BLOCK_M, BLOCK_N)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, l_i, m_i = add_blocks(
        acc, l_i, m_i, q1, q2, q3, k_desc, v_desc, head, HEADS, 0, full, last_key, qk_scale,
        False, BLOCK_M, BLOCK_N, D,
    )  # fmt: skip
    acc, l_i, m_i = add_blocks(
        acc, l_i, m_i, q1, q2, q3, k_desc, v_desc, head, HEADS, full, end, last_key, qk_scale,
        True, BLOCK_M, BLOCK_N, D,
    )  # fmt: skip

    # Infinities in v and hidden NaN give NaN in products with 0. Such a tile is computed again in float32.
    row_mask = rows[:, None] < S_q * G
    nans = tl.max(tl.max(((acc != acc) & row_mask).to(tl.int32), 1), 0)
    offs_d = tl.arange(0, D)
    exponent = tl.load(exponents_ptr + head.to(tl.int64) * D + offs_d)[None, :]
    half = exponent >> 1
    # A row without visible keys is 0; one whose visible keys all score -inf is 0 / 0.
    out = acc / tl.where(last_key < 0, 1.0, l_i)[:, None] * power_of_two(half) * power_of_two(exponent - half)
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    out_ptr += b * stride_ob
    out_ptrs = row_pointers(out_ptr, rows, h_kv, stride_oh, stride_om, G)
    tl.store(out_ptrs + offs_d[None, :], out, mask=rows[:, None] < tl.where(nans == 0, S_q * G, 0))
    if nans > 0:
        recompute_by_key(
            q_ptr + b * stride_qb, k_ptr + b * stride_kb + h_kv * stride_kh, v_ptr + b * stride_vb + h_kv * stride_vh,
            out_ptr, start_m, h_kv, S_q, S_k, S_k - S_q if CAUSAL else S_k, qk_scale, 1.0,
            stride_qh, stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
            G, D, BLOCK_M,
        )  # fmt: skip


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros, one whose keys all score minus
    infinity gives NaN. NaN and infinities of hidden keys and values do not reach the result.
    Dtypes: float32; the tensor cores multiply bfloat16, exactly, and add in float32. Softmax in float32.
    Precision: that of float32 products. Elements of q and k below 2^-110 lose low bits, as do those of v below 2^-110
    of the largest of their head and column. A tile with a NaN, as from an infinity in v, is computed again without
    tensor cores, key by key.
    Memory: 6 bytes for each element of q, k and v.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for 16-bit inputs, which need only one
    product, other D, a negative sm_scale, more than 2^29 rows of a head, and a GPU whose tensor cores have no bfloat16.
    Source: FlashAttention-2 (Dao, 2023) with the parts of matmul/split.py.
    """
    check_attention(q, k, v)
    if q.dtype != torch.float32:
        raise NotImplementedError(f"attention: splits float32 only; got {q.dtype}")
    if q.is_cuda and torch.cuda.get_device_capability(q.device)[0] < 8:
        raise NotImplementedError("attention: bfloat16 tensor cores need compute capability 8.0")
    (_, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    check_head(D, HEAD_DIMS, sm_scale)
    rows = S_q * (H // H_kv) if H_kv else 0
    if max(rows, S_k) > 2**29:
        raise NotImplementedError(f"attention: S_q * H / H_kv and S_k must be at most 2^29; got {rows} and {S_k}")
    if q.numel() > 0 and S_k == 0:
        return torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if q.numel() > 0:
        with device_of(q):
            _attend(q, k, v, out, causal, (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E)
    return out


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernels that `attention` runs; empty if there is nothing to compute."""
    if q.numel() == 0 or k.shape[2] == 0:
        return ""
    tile = _tile(q.shape[3])
    return f"split_rows; split_rows; split_columns; attention_split {tile['BLOCK_M']}x{tile['BLOCK_N']}"


def _tile(D: int) -> dict[str, int]:
    return next(tile for largest, tile in TILES.items() if largest >= D)


def _attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, qk_scale: float) -> None:
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    HEADS, G = B * H_kv, H // H_kv
    tile = _tile(D)
    BLOCK_M, BLOCK_N = tile["BLOCK_M"], tile["BLOCK_N"]
    q_planes, k_planes = _split_rows(q, HEADS, G), _split_rows(k, HEADS, 1)
    v_planes = torch.empty((3 * HEADS, S_k, D), dtype=torch.bfloat16, device=v.device)
    exponents = torch.empty((HEADS, D), dtype=torch.int32, device=v.device)
    BLOCK_D = min(D, SPLIT_COLUMNS)
    launch(
        split_columns_kernel, (HEADS * (D // BLOCK_D),), v, v_planes, exponents, HEADS, H_kv, S_k, *v.stride(),
        D=D, BLOCK_D=BLOCK_D, BLOCK=SPLIT_ELEMENTS // BLOCK_D, num_warps=4,
    )  # fmt: skip
    descs = [
        TensorDescriptor(planes, list(planes.shape), list(planes.stride()), [1, block, D])
        for planes, block in ((q_planes, BLOCK_M), (k_planes, BLOCK_N), (v_planes, BLOCK_N))
    ]
    head_group = min(HEADS, max(1, GROUP_BYTES // (12 * S_k * D)))
    launch(
        attention_split_kernel, (HEADS * triton.cdiv(S_q * G, BLOCK_M),),
        *descs, exponents, q, k, v, out, HEADS, H_kv, S_q, S_k, head_group, qk_scale,
        *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3],
        CAUSAL=causal, G=G, D=D, **tile,
    )  # fmt: skip


def _split_rows(x: Tensor, HEADS: int, G: int) -> Tensor:
    """The three parts of q or k, (3 HEADS, rows, D), with the rows of G heads packed."""
    rows, D = x.shape[2] * G, x.shape[3]
    planes = torch.empty((3 * HEADS, rows, D), dtype=torch.bfloat16, device=x.device)
    block = SPLIT_ELEMENTS // D
    launch(
        split_rows_kernel, (HEADS * triton.cdiv(rows, block),),
        x, planes, HEADS, x.shape[1] // G, rows, *x.stride(), G=G, D=D, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return planes
