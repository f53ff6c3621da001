"""The checks and the output that the convolutions of this folder share."""

from torch import Tensor

from triton_kernels._runtime.contract import check_conv2d
from triton_kernels._runtime.interpreter import empty_output


def new_output(x: Tensor, weight: Tensor, stride: int, padding: int, precision: str) -> tuple[Tensor, bool]:
    """Returns the output (N, P, Q, K), and whether it is already complete: empty, or zero for lack of channels.

    Raises: ValueError for arguments that are not consistent; NotImplementedError for 2^31 - 256 pixels and more.
    """
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    (N, _, _, C), K = x.shape, weight.shape[0]
    if N * P * Q >= 2**31 - 256:
        raise NotImplementedError(f"conv2d: pixels must be below 2^31 - 256; got {N * P * Q} of {tuple(x.shape)}")
    out = empty_output((N, P, Q, K), x.dtype, x.device)
    if C == 0:
        out.zero_()
    return out, out.numel() == 0 or C == 0
