"""A layer of multi-head attention in Gluon for Hopper: product, attention and product, each fed by TMA."""

import torch
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_gpu, check_head
from triton_kernels._runtime.contract import check_multi_head_attention
from triton_kernels._runtime.launch import kept
from triton_kernels.attention.gluon import DTYPES, HEAD_DIMS, attend
from triton_kernels.matmul.gluon import matmul

REQUIRES = "sm_90"


@kept
def multi_head_attention(
    x: Float[Tensor, "B S E"],
    w_qkv: Float[Tensor, "3*E E"],
    w_out: Float[Tensor, "E E"],
    *,
    heads: int,
    causal: bool = False,
) -> Float[Tensor, "B S E"]:
    """y = concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) w_out^T with q, k, v = x w_qkv^T, and D = E // heads.

    Shapes: x (B, S, E), w_qkv (3 E, E), w_out (E, E), laid out as in torch.nn.Linear. The first E columns of x w_qkv^T
    are queries, the next keys, then values, head by head.
    No data is copied between the three kernels: TMA reads q, k and v from the output of the first product, and writes
    heads side by side, as the second product reads them. An x whose rows (b, s) are not equally far apart is copied
    first. The output is contiguous. Causal: position i sees positions up to i.
    Dtypes: float16, bfloat16; sums in float32. The first product and attention's result are rounded.
    Tail and NaN: as in matmul/gluon.py and attention/gluon.py. Errors: those of these two; NotImplementedError also for
    rows of x or of a weight that TMA cannot read; ValueError if heads does not divide E.
    Source: Vaswani et al., "Attention Is All You Need", 2017.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    check_gpu("multi_head_attention", "x", x)
    (B, S, E), D = x.shape, x.shape[2] // heads
    if x.dtype not in DTYPES:
        raise NotImplementedError(f"multi_head_attention: the tensor cores need 16 bits; got {x.dtype}")
    check_head(D, HEAD_DIMS, None)
    qkv = matmul(x.reshape(B * S, E), w_qkv.t())
    q, k, v = qkv.view(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    out = torch.empty((B, S, E), dtype=x.dtype, device=x.device)
    attend(q, k, v, out.view(B, S, heads, D).transpose(1, 2), causal, None)
    return matmul(out.view(B * S, E), w_out.t()).view(B, S, E)
