"""Cross entropy and its gradient in CUDA: adds rows in registers, which are read once, to the plain kernel."""

from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.losses import check_cross_entropy
from cuda_ref.cross_entropy._rows import Logits, Loss, Target, losses

DETERMINISTIC = True


@kept
def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.

    Shapes: logits (T, V), target (T,), any strides; the outputs are contiguous. Indices are int64.
    Tail: columns beyond V are minus infinity. Rows that do not begin and end at multiples of 16 bytes are read element
    by element; rows beyond 128 KiB are read twice.
    Dtypes: float32, float16, bfloat16; target int64. float32 inside, rounded once; the loss is float32.
    A target outside [0, V) gives NaN in its row.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    return losses("registers", logits, target, ignore_index, label_smoothing)
