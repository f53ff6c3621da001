"""Matrix multiplication in CUDA, double-buffered: the next tiles are loaded during the products of the current ones."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; products and sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs as they are; "tf32", for float32 only, first rounds them to tf32 (11
    significant bits, to nearest, ties away from zero). Sums are in order of k, without tensor cores.
    Tail: tiles (128 x 256, or 64 x 128) that overhang are padded with zeros, element by element; outputs beyond the
    edge are not stored. Offsets are int64. Other tiles are read four elements at a time if the rows (or columns) of the
    operand start at multiples of four elements.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices; build.CudaError if
    the launch fails.
    Source: see double_buffered.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matmul/double_buffered", "matmul_double_buffered", a.device,
            a, b, out, M, N, K, *a.stride(), *b.stride(), precision == "tf32", build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
