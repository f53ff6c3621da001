"""C = A B in CUDA: see cuda_matmul.cu."""

from pathlib import Path

from torch import Tensor

from cuda_ref import build
from wrong_kernels import Wrong

MISTAKES = {
    "tail_tile_not_cleared": Wrong("beyond K the tiles keep what the last step left there", "value", (32, 32, 40)),
    "barrier_missing": Wrong("no __syncthreads between filling a tile and reading it", "value", (64, 64, 64)),
    "sums_in_float16": Wrong("the accumulator is float16", "value", (32, 32, 256)),
    "leading_dimension_of_b": Wrong("rows of B are taken to be K apart, not N", "value", (32, 48, 32)),
    "block_axes_swapped": Wrong(
        "blockIdx.x counts rows in the kernel, columns in the launch", "not finite", (64, 16, 32)
    ),
}


def make(mistake: str):
    code = ["", *MISTAKES].index(mistake)

    def matmul(a: Tensor, b: Tensor, *, precision: str = "ieee") -> Tensor:
        (M, K), N = a.shape, b.shape[1]
        out = a.new_empty(M, N)
        build.launch(Path(__file__).with_suffix(".cu"), "matmul", a.device, a, b, out, M, N, K, code)
        return out

    return matmul
