"""top_k in PyTorch: another order, elements that are left out, wrong indices, ties and NaN."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from wrong_kernels import Wrong

SHAPE = (5, 264, 12)
MISTAKES = {
    "smallest": Wrong("the smallest numbers are selected", "value", SHAPE),
    "sizes": Wrong("absolute values are compared", "value", SHAPE),
    "ascending": Wrong("the order is ascending", "value", SHAPE),
    "unsorted": Wrong("the order is that of the row", "value", SHAPE),
    "last_columns": Wrong("columns beyond the last whole 64 do not count", "value", SHAPE),
    "zeros_beyond": Wrong("columns beyond the row count as 0", "value", SHAPE, inputs="negative"),
    "one_of_a_thread": Wrong("each thread keeps the largest of its 4 numbers alone", "value", SHAPE),
    "one_missing": Wrong("the last place repeats the one before", "value", SHAPE),
    "in_block": Wrong("an index is that within its block of 64", "value", SHAPE),
    "one_more": Wrong("an index counts from 1", "value", SHAPE),
    "of_matrix": Wrong("an index is that in the matrix", "value", SHAPE),
    "first_row": Wrong("all rows have the first row's indices", "value", SHAPE),
    "sorted_apart": Wrong("values are sorted without their indices", "value", SHAPE),
    "first_of_equals": Wrong("the index is that of the first equal number", "value", SHAPE, inputs="few"),
    "set_of_values": Wrong("equal numbers count once", "value", SHAPE, inputs="few"),
    "nan_least": Wrong("NaN is less than all numbers", "value", SHAPE, inputs="many_nan"),
    "float16_keys": Wrong("numbers are compared in float16", "value", (3, 1000, 100)),
    "values_in_bfloat16": Wrong("values went through bfloat16", "value", SHAPE),
    "int32": Wrong("the indices are int32", "dtype", SHAPE),
    "only_values": Wrong("only values are returned", "type", SHAPE),
}


def make(mistake: str):
    def top_k(x: Tensor, *, k: int) -> tuple[Tensor, ...]:
        n, wide = x.shape[1], x.double()
        keys = {
            "smallest": lambda: -wide,
            "sizes": lambda: wide.abs(),
            "last_columns": lambda: wide[:, : n // 64 * 64],
            "zeros_beyond": lambda: pad(wide, (0, -n % 512)),
            "one_of_a_thread": lambda: largest_of_fours(wide),
            "nan_least": lambda: wide.nan_to_num(-torch.inf),
            "float16_keys": lambda: x.half().double(),
        }.get(mistake, lambda: wide)()
        indices = keys.sort(dim=1, descending=True, stable=True).indices[:, :k]
        if mistake == "ascending":
            indices = indices.flip(1)
        if mistake == "unsorted":
            indices = indices.sort(dim=1).values
        if mistake == "one_missing":
            indices = torch.cat([indices[:, :-1], indices[:, -2:-1]], dim=1)
        if mistake == "set_of_values":
            indices = distinct(wide, k)
        values = pad(x, (0, keys.shape[1] - n) if keys.shape[1] > n else (0, 0)).gather(1, indices)
        if mistake == "values_in_bfloat16":
            values = values.bfloat16().to(x.dtype)
        given = {
            "in_block": lambda: indices % 64,
            "one_more": lambda: indices + 1,
            "of_matrix": lambda: indices + n * torch.arange(len(x), device=x.device)[:, None],
            "first_row": lambda: indices[:1].expand_as(indices),
            "sorted_apart": lambda: indices.sort(dim=1).values,
            "first_of_equals": lambda: (x[:, None, :] == values[:, :, None]).double().argmax(dim=2),
            "int32": lambda: indices.int(),
        }.get(mistake, lambda: indices)()
        return (values,) if mistake == "only_values" else (values.contiguous(), given.contiguous())

    return top_k


def largest_of_fours(x: Tensor) -> Tensor:
    """Each number that is the largest of its 4 neighbours, and -inf for the others."""
    fours = x.view(len(x), -1, 4)
    return torch.where(fours == fours.amax(dim=2, keepdim=True), fours, -torch.inf).view(x.shape)


def distinct(x: Tensor, k: int) -> Tensor:
    """Indices of the k largest different numbers, each once; then those of the other elements."""
    ordered, order = x.sort(dim=1, descending=True, stable=True)
    repeated = pad(ordered.diff(dim=1) == 0.0, (1, 0)).double()
    return order.gather(1, repeated.sort(dim=1, stable=True).indices)[:, :k]
