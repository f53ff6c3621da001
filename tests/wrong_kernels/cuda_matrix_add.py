"""C = A + B in CUDA: see cuda_matrix_add.cu."""

from pathlib import Path

from torch import Tensor

from cuda_ref import build
from wrong_kernels import Wrong

MISTAKES = {
    "strides_ignored": Wrong(
        "both inputs are read as if they were row-major", "value", (33, 65), options={"layout": "nt"}
    ),
    "written_column_major": Wrong("the output is written by columns", "value", (33, 65)),
    "rows_beyond_65535": Wrong(
        "one row a block along y, which counts to 65535, and no loop", "not finite", (65_600, 2)
    ),
}


def make(mistake: str):
    code = ["", *MISTAKES].index(mistake)

    def matrix_add(a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(a.shape)
        build.launch(
            Path(__file__).with_suffix(".cu"), "matrix_add", a.device,
            a, b, out, *a.shape, *a.stride(), *b.stride(), code,
        )  # fmt: skip
        return out

    return matrix_add
