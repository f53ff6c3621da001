"""Products of each expert's rows with its weights in CUDA: a block finds its expert from the sizes."""

from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_matmul
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "T N"]:
    """out[t, n] = sum over k of x[t, k] * weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, K, N), sizes (E,), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16; products and sums in float32, rounded once at the end; sizes int32.
    Tail: threads beyond the last row of an expert do nothing. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see grouped_matmul.cu.
    """
    T, E, K, N = check_grouped_matmul(x, weight, sizes)
    out = x.new_empty(T, N)
    if out.numel() > 0:
        build.launch(
            "grouped_matmul/grouped_matmul", "grouped_matmul", x.device,
            x, weight, sizes, out, T, E, K, N, *x.stride(), *weight.stride(), *sizes.stride(), build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
