"""Exercise triton/06_softmax: a row in registers, from one pass over memory.

out[m, n] = exp(x[m, n] - max) / sum, with the maximum and the sum of row m.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    # TODO: load row m. Which `other` is never the maximum, and has the exponential 0? Declare `weights`, the
    # exponentials of the row minus its maximum (tl.max(block, axis=0)).
    # END
    tl.store(out_ptr + m * N + offs, weights / tl.sum(weights, axis=0), mask=offs < N)


def softmax(x):
    M, N = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out
