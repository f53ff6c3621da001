"""Products of each expert's rows with its weights in float8 in CUDA on Hopper, in clusters of two blocks.

Adds clusters to `cuda/wgmma`: each of two blocks loads half of the weights for both. For experts with many rows.
"""

from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.grouped_block_scaled_matmul.wgmma import run
from cuda_ref.grouped_matmul.wgmma import PAIRED

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@kept
def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, "E"],
) -> Float[Tensor, "T N"]:
    """out[t, n] = sum over groups g of scale_x[t, g] * scale_weight[e, n / 128, g] * (the sum of the group's products).

    Row t is among the sizes[e] rows of expert e. The rows are in the order of the experts; sizes are not negative, and
    their sum is T. The host does not read them.

    Shapes, strides, dtypes, devices and errors: those of `wgmma.py`.
    Tail: a tile has 256 rows of one expert; the blocks of a cluster multiply rows beyond them, and do not store these.
    Source: see wgmma.cu; the cluster is that of matmul/wgmma.cu.
    """
    return run(PAIRED, x, scale_x, weight, scale_weight, sizes)


def config(x: Tensor, scale_x: Tensor, weight: Tensor, scale_weight: Tensor, sizes: Tensor) -> str:
    """The kernel, its tile, and the blocks of a cluster."""
    return "wgmma 256x256 cluster=2" if x.numel() * weight.numel() > 0 else ""
