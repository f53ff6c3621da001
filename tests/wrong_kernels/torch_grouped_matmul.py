"""grouped_matmul in PyTorch: the weights of another expert, the wrong end of an expert, experts without rows."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (150, 5, 40, 33)
SKEWED, EDGES, EMPTY = {"sizes": "skewed"}, {"sizes": "edges"}, {"sizes": "empty"}
MISTAKES = {
    "weights_of_next": Wrong("expert e has the weights of expert e + 1", "value", SHAPE, options=SKEWED),
    "weights_of_first": Wrong("all experts have the weights of the first", "value", SHAPE, options=SKEWED),
    "empty_not_counted": Wrong("experts without rows are skipped, and indices shift", "value", SHAPE, options=EMPTY),
    "sizes_ignored": Wrong("all experts are taken to have T / E rows", "value", SHAPE, options=SKEWED),
    "last_row_missing": Wrong("the last row of each expert is not written", "value", SHAPE, options=SKEWED),
    "last_row_of_next": Wrong("the last row of an expert goes to the next one", "value", SHAPE, options=SKEWED),
    "first_row_of_previous": Wrong("the first row of an expert goes to the one before", "value", SHAPE, options=SKEWED),
    "tail_missing": Wrong("rows after the last whole tile of 64 are not written", "value", SHAPE, options=EDGES),
    "tail_overwrites": Wrong("the last tile of 64 rows overwrites the next expert", "value", SHAPE, options=EDGES),
    "tile_of_first_row": Wrong("a tile of 64 rows has the weights of its first row", "value", SHAPE, options=EDGES),
    "rows_shifted": Wrong("row t is computed from row t + 1 of x", "value", SHAPE, options=SKEWED),
    "transposed": Wrong("the weights are read transposed", "value", (150, 5, 40, 40), options=SKEWED),
    "last_of_k_missing": Wrong("the last term of K is left out", "value", SHAPE, options=SKEWED),
    "factors_rounded": Wrong("float32, but factors are rounded to bfloat16", "value", SHAPE, options=SKEWED),
    "sizes_of_first_call": Wrong("the host keeps the sizes of its first call", "value", SHAPE, options=SKEWED),
    "nan_of_unused": Wrong(
        "other experts' weights are multiplied by 0", "not finite", SHAPE, options=EMPTY, inputs="unused_nan"
    ),
}  # fmt: skip


def make(mistake: str):
    first: list[list[int]] = []

    def grouped_matmul(x: Tensor, weight: Tensor, sizes: Tensor) -> Tensor:
        (T, K), (E, _, N) = x.shape, weight.shape
        rows = sizes.tolist()
        first.append(rows)
        if mistake == "sizes_of_first_call":
            rows = first[0]
        if mistake == "sizes_ignored":
            rows = [T // E] * (E - 1) + [T - T // E * (E - 1)]
        experts = torch.arange(E, device=x.device).repeat_interleave(sizes.new_tensor(rows))
        if mistake == "last_row_of_next":
            experts = torch.cat((experts[1:], experts[-1:]))
        if mistake == "first_row_of_previous":
            experts = torch.cat((experts[:1], experts[:-1]))
        if mistake == "tile_of_first_row":
            experts = experts[torch.arange(T, device=x.device) // 64 * 64]
        if mistake == "empty_not_counted":
            experts = experts.unique(return_inverse=True)[1]
        factors, weights, terms = x.double(), weight.double(), K
        if mistake == "factors_rounded":
            factors, weights = x.bfloat16().double(), weight.bfloat16().double()
        if mistake == "rows_shifted":
            factors = torch.cat((factors[1:], factors[-1:]))
        if mistake == "transposed":
            weights = weights.mT
        if mistake == "last_of_k_missing":
            terms = K - 1
        out = torch.zeros(T, N, dtype=torch.float64, device=x.device)
        start = 0
        for e in range(E):
            own = {"weights_of_next": (e + 1) % E, "weights_of_first": 0}.get(mistake, e)
            at = experts == e
            out[at] = factors[at, :terms] @ weights[own, :terms]
            if mistake == "nan_of_unused":
                out += 0.0 * weights[own].sum()
        for e in reversed(range(E)):
            start, end = sum(rows[:e]), sum(rows[: e + 1])
            if mistake == "last_row_missing" and end > start:
                out[end - 1] = 0.0
            if mistake == "tail_missing":
                out[start + (end - start) // 64 * 64 : end] = 0.0
            if mistake == "tail_overwrites":
                tail = slice(end, min(T, start + -(-(end - start) // 64) * 64))
                out[tail] = factors[tail] @ weights[e]
        return out.to(x.dtype)

    return grouped_matmul
