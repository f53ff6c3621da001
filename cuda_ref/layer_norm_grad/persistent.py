"""The gradients of layer normalization in CUDA in one pass: adds blocks that stay on the device, and sums of
columns in registers, to the plain kernels."""

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm_pair
from cuda_ref._runtime.kept import kept
from cuda_ref.common.norm_grads import resident_blocks
from cuda_ref.layer_norm_grad import Matrix, Vector

DETERMINISTIC = True


@kept
def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x.

    Shapes: x and dy (M, N), weight (N,), rows of at most 32 KiB; the outputs are contiguous.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. The order of sums depends on the device.
    Tail: columns beyond N are left out. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows, and for rows beyond 16 KiB on
    a GPU whose blocks have less shared memory than they need; build.CudaError if a launch fails.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    M, N = x.shape
    if x.numel() == 0:
        return x.new_empty(M, N), weight.new_zeros(N), weight.new_zeros(N)
    weight = weight.contiguous()
    blocks, partial = resident_blocks("layer_norm_grad", x, weight, dy, results=2)
    dx, dweight, dbias = x.new_empty(M, N), weight.new_empty(N), weight.new_empty(N)
    build.launch(
        "layer_norm_grad/persistent", "layer_norm_grad_persistent", x.device,
        x, weight, dy, dx, dweight, dbias, partial, M, N, x.stride(0), dy.stride(0), eps, blocks, build.DTYPES[x.dtype],
    )  # fmt: skip
    return dx, dweight, dbias
