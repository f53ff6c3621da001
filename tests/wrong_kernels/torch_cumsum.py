"""cumsum in PyTorch: sums that begin at another place, blocks that do not meet, sums in few bits."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from wrong_kernels import Wrong

SHAPE = (9, 264)
MISTAKES = {
    "exclusive": Wrong("a number does not count for its own sum", "value", SHAPE),
    "from_the_end": Wrong("sums from each number on", "value", SHAPE),
    "along_columns": Wrong("the columns are added", "value", SHAPE),
    "row_sum": Wrong("each sum is that of the whole row", "value", SHAPE),
    "not_reset": Wrong("one program adds all rows and does not start anew", "value", SHAPE),
    "blocks_from_0": Wrong("each block of 64 begins at 0", "value", SHAPE),
    "block_late": Wrong("a block reads the sum before it too early", "value", SHAPE),
    "no_sum": Wrong("x is copied", "value", SHAPE),
    "sizes": Wrong("sizes are added", "value", SHAPE),
    "bfloat16_sum": Wrong("the running sum is kept in bfloat16", "value", SHAPE, "bfloat16"),
    "float16_x": Wrong("float32 numbers are read as float16", "value", SHAPE),
    "difference": Wrong("sums before are differences: inf - inf", "not finite", SHAPE, inputs="infinity"),
    "by_product": Wrong("a triangle of ones times a row: 0 times NaN", "not finite", SHAPE, inputs="nan"),
}  # fmt: skip


def make(mistake: str):
    def cumsum(x: Tensor) -> Tensor:
        m, n = x.shape
        wide = x.double()
        right = wide.cumsum(dim=1)
        blocks = pad(wide, (0, -n % 64)).view(m, -1, 64)
        within, totals = blocks.cumsum(dim=2), blocks.sum(dim=2, keepdim=True)
        before = totals.cumsum(dim=1) - totals
        value = {
            "exclusive": lambda: right - wide,
            "from_the_end": lambda: wide.flip(1).cumsum(dim=1).flip(1),
            "along_columns": lambda: wide.cumsum(dim=0),
            "row_sum": lambda: right[:, -1:].expand(m, n),
            "not_reset": lambda: wide.reshape(1, -1).cumsum(dim=1).view(m, n),
            "blocks_from_0": lambda: within.reshape(m, -1)[:, :n],
            "block_late": lambda: (within + pad(before[:, :-1], (0, 0, 1, 0))).reshape(m, -1)[:, :n],
            "no_sum": lambda: wide,
            "sizes": lambda: wide.abs().cumsum(dim=1),
            "bfloat16_sum": lambda: running(x),
            "float16_x": lambda: x.half().double().cumsum(dim=1),
            "difference": lambda: (right - wide) + wide,
            "by_product": lambda: wide @ wide.new_ones(n, n).triu(),
        }.get(mistake, lambda: right)()
        return value.to(x.dtype).contiguous()

    return cumsum


def running(x: Tensor) -> Tensor:
    """Sums that are rounded to bfloat16 after each addition."""
    found, total = [], torch.zeros_like(x[:, 0])
    for column in x.unbind(dim=1):
        total = total + column
        found.append(total)
    return torch.stack(found, dim=1).double()
