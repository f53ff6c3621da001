"""grouped_matmul_grad in PyTorch: the rows of another expert, the wrong end of an expert, unwritten results."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (150, 5, 40, 33)
SKEWED, EDGES, EMPTY = {"sizes": "skewed"}, {"sizes": "edges"}, {"sizes": "empty"}
MISTAKES = {
    "rows_of_next": Wrong("expert e has the gradient of expert e + 1", "value", SHAPE, options=SKEWED),
    "empty_not_counted": Wrong("experts without rows are skipped, and indices shift", "value", SHAPE, options=EMPTY),
    "empty_not_written": Wrong("experts without rows keep what memory held", "not finite", SHAPE, options=EMPTY),
    "sizes_ignored": Wrong("all experts are taken to have T / E rows", "value", SHAPE, options=SKEWED),
    "all_rows": Wrong("each expert sums over all rows", "value", SHAPE, options=SKEWED),
    "last_row_missing": Wrong("the last row of each expert is left out", "value", SHAPE, options=SKEWED),
    "first_row_missing": Wrong("the first row of each expert is left out", "value", SHAPE, options=SKEWED),
    "row_of_next_added": Wrong("the first row of the next expert is added", "value", SHAPE, options=SKEWED),
    "tail_missing": Wrong("rows after the last whole step of 64 are left out", "value", SHAPE, options=EDGES),
    "tail_overhangs": Wrong("the last step of 64 rows is not cut at the end", "value", SHAPE, options=EDGES),
    "mean": Wrong("the sum is divided by the number of rows", "value", SHAPE, options=SKEWED),
    "transposed": Wrong("dW^T is stored", "value", (150, 5, 40, 40), options=SKEWED),
    "factors_rounded": Wrong("float32, but factors are rounded to bfloat16", "value", SHAPE, options=SKEWED),
    "nan_of_next": Wrong("other experts' rows are multiplied by 0", "not finite", SHAPE, options=SKEWED, inputs="nan"),
}


def make(mistake: str):
    def grouped_matmul_grad(x: Tensor, dy: Tensor, sizes: Tensor) -> Tensor:
        (T, K), N, E = x.shape, dy.shape[1], len(sizes)
        rounds = mistake == "factors_rounded"
        factors = [(each.bfloat16() if rounds else each).double() for each in (x, dy)]
        ends = sizes.cumsum(0).tolist()
        rows = list(zip([0, *ends[:-1]], ends, strict=True))
        if mistake == "sizes_ignored":
            rows = [(e * T // E, (e + 1) * T // E) for e in range(E)]
        if mistake == "rows_of_next":
            rows = [*rows[1:], rows[0]]
        if mistake == "empty_not_counted":
            rows = sorted(rows, key=lambda each: each[0] == each[1])
        out = torch.zeros(E, K, N, dtype=torch.float64, device=x.device)
        for e, (start, end) in enumerate(rows):
            if mistake == "all_rows":
                start, end = 0, T
            if mistake == "last_row_missing":
                end = max(start, end - 1)
            if mistake == "first_row_missing":
                start = min(start + 1, end)
            if mistake == "row_of_next_added":
                end = min(T, end + 1)
            if mistake == "tail_missing":
                end = start + (end - start) // 64 * 64
            if mistake == "tail_overhangs":
                end = min(T, start + -(-(end - start) // 64) * 64)
            if mistake == "empty_not_written" and start == end:
                out[e] = torch.nan
                continue
            a, b = (each[start:end] for each in factors)
            if mistake == "nan_of_next":
                inside = torch.zeros(T, 1, dtype=torch.float64, device=x.device)
                inside[start:end] = 1.0
                a, b = (each * inside for each in factors)
            out[e] = a.T @ b
            if mistake == "mean":
                out[e] /= max(end - start, 1)
        if mistake == "transposed":
            out = out.mT
        return out.to(x.dtype).contiguous()

    return grouped_matmul_grad
