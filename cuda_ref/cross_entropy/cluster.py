"""Cross entropy of long rows in CUDA: adds clusters of blocks that share each row to registers.py."""

from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.losses import check_cross_entropy
from cuda_ref.common.rows import are_packed, sharing
from cuda_ref.cross_entropy._rows import Logits, Loss, Target, losses

DETERMINISTIC = True
REQUIRES = "sm_90"


@kept
def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.

    Shapes: logits (T, V), rows of more than 64 KiB and at most 512 KiB; the outputs are contiguous. Indices are int64.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes; target any.
    Dtypes: float32, float16, bfloat16; target int64. float32 inside, rounded once; the loss is float32.
    A target outside [0, V) gives NaN in its row.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows and on other devices;
    build.CudaError if the launch fails.
    """
    check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    shared = sharing("cross_entropy", logits, are_packed(logits)) if logits.numel() else ()
    return losses("cluster", logits, target, ignore_index, label_smoothing, *shared)
