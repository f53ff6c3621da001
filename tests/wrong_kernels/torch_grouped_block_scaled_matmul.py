"""grouped_block_scaled_matmul in PyTorch: other experts, rows and scales, the wrong end of an expert, fewer digits."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (150, 4, 272, 140)
SKEWED, EDGES, EMPTY = (
    {"dtype": "float8_e4m3fn", "precision": "promoted", "options": {"sizes": sizes}}
    for sizes in ("skewed", "edges", "empty")
)
MISTAKES = {
    "weights_of_next": Wrong("expert e has weights and scales of expert e + 1", "value", SHAPE, **SKEWED),
    "scales_of_next": Wrong("the weights of expert e have the scales of expert e + 1", "value", SHAPE, **SKEWED),
    "scales_of_first": Wrong("all weights have the scales of the first expert", "value", SHAPE, **SKEWED),
    "empty_not_counted": Wrong(
        "experts without rows are skipped, and indices shift", "value", (90, 7, 272, 140), **EMPTY
    ),
    "sizes_ignored": Wrong("all experts are taken to have T / E rows", "value", SHAPE, **SKEWED),
    "last_row_of_next": Wrong("the last row of an expert goes to the next one", "value", SHAPE, **SKEWED),
    "tail_missing": Wrong("rows after the last whole tile of 64 are not written", "value", SHAPE, **EDGES),
    "tail_overwrites": Wrong("the last tile of 64 rows overwrites the next expert", "value", SHAPE, **EDGES),
    "scale_rows_within": Wrong("scales of x are counted from the expert's first row", "value", SHAPE, **SKEWED),
    "next_row": Wrong("a row of x has the scales of the row after", "value", SHAPE, **SKEWED),
    "next_block": Wrong("rows of weight have the scales of the next 128", "value", SHAPE, **SKEWED),
    "next_group": Wrong("the scales are those of the group after", "value", SHAPE, **SKEWED),
    "no_scale_x": Wrong("the scales of x are left out", "value", SHAPE, **SKEWED),
    "no_scale_weight": Wrong("the scales of weight are left out", "value", SHAPE, **SKEWED),
    "last_group_dropped": Wrong("terms beyond the last whole 128 are left out", "value", SHAPE, **SKEWED),
    "factors_in_bfloat16": Wrong(
        "codes times scales are bfloat16", "value", (70, 3, 512, 140), inputs="cancellation", **SKEWED
    ),
    "sums_in_bfloat16": Wrong("the sum is kept in bfloat16", "value", (48, 2, 4096, 32), inputs="exact_sums", **SKEWED),
    "nan_of_unused": Wrong(
        "other experts' weights are multiplied by 0", "not finite", SHAPE, inputs="unused_nan", **EMPTY
    ),
    "float32_result": Wrong("the result is not rounded to bfloat16", "dtype", SHAPE, **SKEWED),
}


def make(mistake: str):
    def grouped_block_scaled_matmul(x: Tensor, scale_x: Tensor, weight: Tensor, scale_weight: Tensor, sizes: Tensor):
        (T, K), (E, N, _) = x.shape, weight.shape
        rows = [T // E] * (E - 1) + [T - T // E * (E - 1)] if mistake == "sizes_ignored" else sizes.tolist()
        expert = torch.arange(E, device=x.device).repeat_interleave(sizes.new_tensor(rows))
        starts = (sizes.cumsum(0) - sizes)[expert]
        if mistake == "last_row_of_next":
            expert = torch.cat((expert[1:], expert[-1:]))
        if mistake == "empty_not_counted":
            expert = expert.unique(return_inverse=True)[1]
        of_x, of_weight = scale_x.double(), scale_weight.double()
        if mistake == "scale_rows_within":
            of_x = of_x[torch.arange(T, device=x.device) - starts]
        of_x, of_weight = scales(of_x, of_weight, mistake)
        of_weight = of_weight.repeat_interleave(128, 1)[:, :N]
        terms = K // 128 * 128 if mistake == "last_group_dropped" else K
        out = torch.zeros(T, N, dtype=torch.float64, device=x.device)
        for e in range(E):
            own = (e + 1) % E if mistake == "weights_of_next" else e
            at = expert == e
            out[at] = product(x[at], of_x[at], weight[own], of_weight[own], terms, mistake)
            if mistake == "nan_of_unused":
                out += 0.0 * weight[e].double().sum()
        for e in reversed(range(E)):
            start, end = sum(rows[:e]), sum(rows[: e + 1])
            if mistake == "tail_missing":
                out[start + (end - start) // 64 * 64 : end] = 0.0
            if mistake == "tail_overwrites":
                tail = slice(end, min(T, start + -(-(end - start) // 64) * 64))
                out[tail] = product(x[tail], of_x[tail], weight[e], of_weight[e], terms, mistake)
        return out.float() if mistake == "float32_result" else out.bfloat16()

    return grouped_block_scaled_matmul


def scales(of_x: Tensor, of_weight: Tensor, mistake: str) -> tuple[Tensor, Tensor]:
    """The scales with a mistake."""
    if mistake == "scales_of_next":
        return of_x, of_weight.roll(-1, 0)
    if mistake == "scales_of_first":
        return of_x, of_weight[:1].expand_as(of_weight)
    if mistake == "next_row":
        return torch.cat((of_x[1:], of_x[-1:])), of_weight
    if mistake == "next_block":
        return of_x, of_weight.roll(-1, 1)
    if mistake == "next_group":
        return of_x.roll(-1, 1), of_weight.roll(-1, 2)
    if mistake == "no_scale_x":
        return torch.ones_like(of_x), of_weight
    return of_x, torch.ones_like(of_weight) if mistake == "no_scale_weight" else of_weight


def product(x: Tensor, of_x: Tensor, weight: Tensor, of_weight: Tensor, terms: int, mistake: str) -> Tensor:
    """The product of the rows of one expert, float64."""
    left, right = x.double(), weight.double()
    if mistake == "factors_in_bfloat16":
        left, right = (
            (codes * of.repeat_interleave(128, 1)[:, : codes.shape[1]]).bfloat16().double()
            for codes, of in ((left, of_x), (right, of_weight))
        )
        of_x, of_weight = torch.ones_like(of_x), torch.ones_like(of_weight)
    acc = torch.zeros(len(x), len(weight), dtype=torch.float64, device=x.device)
    for group, start in enumerate(range(0, terms, 128)):
        span = slice(start, start + 128)
        acc = acc + left[:, span] @ right[:, span].mT * (of_x[:, group, None] * of_weight[:, group])
        if mistake == "sums_in_bfloat16":
            acc = acc.bfloat16().double()
    return acc
