"""Matrix multiplication in CUDA, the plain kernel: one thread for each element of the output."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; products and sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs as they are; "tf32", for float32 only, first rounds them to tf32 (11
    significant bits, to nearest, ties away from zero). Sums are in order of k, without tensor cores.
    Tail: threads beyond the edge of the output do nothing. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices; build.CudaError if
    the launch fails.
    Source: see matmul.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision, float64=True)
    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matmul/matmul", "matmul", a.device,
            a, b, out, M, N, K, *a.stride(), *b.stride(), precision == "tf32", build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
