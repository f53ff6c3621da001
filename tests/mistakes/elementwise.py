"""Additions and sigmoid: tails, addresses, layouts, unusual numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from mistakes import Mistake


def add(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() + b.double()).to(a.dtype).contiguous()


def as_contiguous(x: Tensor) -> Tensor:
    """The elements that follow one another in memory."""
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride())


def from_aligned_address(x: Tensor) -> Tensor:
    """The elements from the address rounded down to 16 bytes."""
    elements = 16 // x.element_size()
    return torch.as_strided(x, x.shape, x.stride(), x.storage_offset() // elements * elements)


def with_16_bit_index(x: Tensor) -> Tensor:
    return x[torch.arange(len(x)) % 2**16]


def with_signed_16_bit_index(x: Tensor) -> Tensor:
    """NaN where the offset is negative: memory before the operand."""
    flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    offsets = torch.arange(x.shape[0])[:, None] * x.stride(0) + torch.arange(x.shape[1]) * x.stride(1)
    at = (offsets + 2**15) % 2**16 - 2**15
    return flat[(at + x.storage_offset()).clamp(min=0)].masked_fill(at < 0, torch.nan)


def without_subnormals(x: Tensor) -> Tensor:
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros_like(x), x)


def last_vector_skipped(a: Tensor, b: Tensor) -> Tensor:
    c = add(a, b)
    if c.numel() % 1024 == 0:
        c[-4:] = 0
    return c


def tail_not_written(a: Tensor, b: Tensor) -> Tensor:
    c, whole = torch.empty_like(a), a.numel() // 128 * 128
    c[:whole] = add(a, b)[:whole]
    return c


def twice_in_the_tail(a: Tensor, b: Tensor) -> Tensor:
    c = add(a, b)
    c[896:] += b[896:]
    return c


def rows_only(a: Tensor, b: Tensor) -> Tensor:
    c = add(a, b)
    c[:, 64:] = 0
    return c


def last_column_repeated(a: Tensor, b: Tensor) -> Tensor:
    c, n = add(a, b), a.shape[1] // 8 * 8
    c[:, n:] = c[:, n - 1 : n]
    return c


def stable_sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x.double()).to(x.dtype).contiguous()


def last_element_zero(x: Tensor) -> Tensor:
    y = stable_sigmoid(x)
    y[-1] = 0
    return y


KERNELS = [
    Mistake("last vector skipped", "vector_add", (2048,), last_vector_skipped, r"^as if \[2044:2048\] was left 0"),
    Mistake("tail not written", "vector_add", (1000,), tail_not_written, r"^as if \[896:1000\] was never written"),
    Mistake(
        "tail not written in 16 bits", "vector_add", (1000,), tail_not_written,
        r"^as if \[896:1000\] was never written", "bfloat16",
    ),
    Mistake("twice in the tail", "vector_add", (1000,), twice_in_the_tail, ""),
    Mistake(
        "pointer of b rounded down", "vector_add", (1000,), lambda a, b: add(a, from_aligned_address(b)),
        r"b was read from an address rounded down to 16 bytes", inputs="offset",
    ),
    Mistake(
        "both pointers rounded down", "vector_add", (1000,),
        lambda a, b: add(from_aligned_address(a), from_aligned_address(b)),
        r"were read from an address rounded down to 16 bytes", inputs="offset",
    ),
    Mistake(
        "a read as contiguous", "vector_add", (1000,), lambda a, b: add(as_contiguous(a), b),
        r"a was read as if it was contiguous", inputs="strided",
    ),
    Mistake(
        "broadcast operand read as contiguous", "matrix_add", (40, 64), lambda a, b: add(as_contiguous(a), b),
        r"a was read as if it was contiguous", inputs="broadcast",
    ),
    Mistake(
        "16-bit index", "vector_add", (70_000,), lambda a, b: add(with_16_bit_index(a), b),
        r"a was read at offsets cut to 16 bits",
    ),
    Mistake(
        "16-bit index with a sign", "matrix_add", (31, 64), lambda a, b: add(with_signed_16_bit_index(a), b),
        r"a was read at offsets of 16 bits with a sign", inputs="stepped/dense",
    ),
    Mistake(
        "subnormal inputs flushed", "vector_add", (1000,),
        lambda a, b: add(without_subnormals(a), without_subnormals(b)), r"subnormal", inputs="subnormal",
    ),
    Mistake(
        "subnormal inputs of a flushed", "vector_add", (1000,), lambda a, b: add(without_subnormals(a), b),
        r"subnormal numbers of a were taken for 0|subnormal inputs were taken for 0", inputs="subnormal",
    ),
    Mistake(
        "subnormal results flushed", "vector_add", (1000,), lambda a, b: without_subnormals(add(a, b)),
        r"subnormal", inputs="subnormal",
    ),
    Mistake(
        "infinity taken for the largest", "vector_add", (1000,),
        lambda a, b: add(a, b).nan_to_num(torch.nan), r"clamped|largest", inputs="infinity",
    ),
    Mistake("columns after 64 zero", "matrix_add", (40, 100), rows_only, r"^as if \[0:40, 64:100\] was left 0"),
    Mistake(
        "last columns repeated", "matrix_add", (40, 99), last_column_repeated,
        r"the last 3 columns of the result repeated the one before",
    ),
    Mistake("b transposed", "matrix_add", (48, 48), lambda a, b: add(a, b.mT), r"b was read transposed"),
    Mistake("b first row", "matrix_add", (48, 40), lambda a, b: add(a, b[:1].expand(b.shape)), r"first row of b"),
    Mistake("last element zero", "sigmoid", (640,), last_element_zero, r"^as if \[639:640\] was left 0"),
    Mistake(
        "NaN replaced by 0", "sigmoid", (1000,), lambda x: stable_sigmoid(x.nan_to_num(0.0)),
        r"NaN was (taken for 0|lost)", inputs="nan",
    ),
    Mistake(
        "bfloat16 through float16", "sigmoid", (1000,), lambda x: stable_sigmoid(x).half().to(x.dtype),
        r"float16", "bfloat16", prepare=lambda x: (x * 8.0,),
    ),
]  # fmt: skip
