"""Exercise triton/13_attention: softmax(q k^T / sqrt(D)) v without the matrix of scores.

One head: q, k and v are [S, D]; S is a multiple of BLOCK, D a power of two. A program has BLOCK queries, and goes over
the keys once, BLOCK at a time. It keeps for each query the maximum, the sum of the weights, and the weighted sum of v.
"""

import math

import torch
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, S, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)[:, None] * D + tl.arange(0, D)[None, :]  # [BLOCK, D]
    first = tl.program_id(0) * BLOCK * D
    q = tl.load(q_ptr + first + offs)
    m = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)  # maximum of each query
    total = tl.zeros((BLOCK,), dtype=tl.float32)  # sum of its weights
    acc = tl.zeros((BLOCK, D), dtype=tl.float32)  # weighted sum of v
    for start in range(0, S, BLOCK):
        k = tl.load(k_ptr + start * D + offs)
        v = tl.load(v_ptr + start * D + offs)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK, BLOCK]
        # TODO: include these keys in m, total and acc. The new maximum of each row; the weights exp(scores - maximum);
        # the factor by which earlier sums shrink; then total, acc (a tl.dot of the weights with v) and m.
        larger = tl.maximum(m, tl.max(scores, axis=1))
        weights = tl.exp(scores - larger[:, None])
        shrink = tl.exp(m - larger)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weights, v, input_precision="ieee")
        m = larger
        # END
    tl.store(out_ptr + first + offs, acc / total[:, None])


def attention(q, k, v):
    S, D = q.shape
    out = torch.empty_like(q)
    attention_kernel[(S // BLOCK,)](q, k, v, out, S, 1 / math.sqrt(D), D=D, BLOCK=BLOCK)
    return out
