"""The gradients of attention in Triton: `gluon` where it covers the case, otherwise `peeled`.

Their times are in results/nvidia-h200/attention_grad_sizes: `gluon` is faster in every row that it covers.
"""

from types import ModuleType

import torch
from torch import Tensor

from triton_kernels._runtime.contract import check_attention_grad
from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels._runtime.launch import kept
from triton_kernels.attention_grad import Keys, Queries, gluon, peeled

DETERMINISTIC = True


def choose(q: Tensor) -> ModuleType:
    """The module whose kernels `attention_grad` runs."""
    covered = q.dtype in gluon.DTYPES and q.shape[3] in gluon.HEAD_DIMS
    if covered and not INTERPRET and torch.cuda.get_device_capability(q.device)[0] == 9:
        return gluon
    return peeled


@kept
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; D is a power of two from 16 to 128.
    `causal` and `sm_scale` are those of `attention`.
    Choice: on Hopper, in 16 bits, with D = 64 or 128 `gluon`; `peeled` for all others.
    Dtypes, memory, hidden rows: those of the kernels that are chosen.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or,
    with `peeled`, strides along S of 2**22 or more; RuntimeError as in gluon.py.
    """
    check_attention_grad(q, k, v, do)
    gradients: tuple[Tensor, Tensor, Tensor] = choose(q).attention_grad(q, k, v, do, causal=causal, sm_scale=sm_scale)
    return gradients


def config(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernels that `attention_grad` runs; empty if there is nothing to compute."""
    text: str = choose(q).config(q, k, v, do, causal=causal, sm_scale=sm_scale)
    return text
