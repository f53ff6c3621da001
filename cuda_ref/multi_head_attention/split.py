"""A layer of multi-head attention in CUDA with float32 accuracy. Both products use Hopper's bfloat16 tensor cores, by
matmul/split.py; attention between them is attention/tiles.cu."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_multi_head_attention
from cuda_ref._runtime.kept import kept
from cuda_ref.attention.tiles import attend
from cuda_ref.matmul.split import matmul

REQUIRES = "sm_90"
DETERMINISTIC = True
ARITHMETIC = "6 x bfloat16"


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
    No data is copied between the products and attention: see the plain kernel. The output is contiguous.
    Causal: position i sees positions up to i.
    Dtypes: float32. The products x w_qkv^T and o w_out^T are sums of six products of bfloat16; attention multiplies
    float32.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for 16-bit
    dtypes and for D above 256; build.CudaError if a launch fails.
    Source: see matmul/split.cu and attention/tiles.cu.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    (B, S, E), D = x.shape, x.shape[2] // heads
    if x.dtype != torch.float32:
        raise NotImplementedError(f"multi_head_attention: splits float32 only; got {x.dtype}")
    if D > 256:
        raise NotImplementedError(f"multi_head_attention: E / heads must be at most 256; got {D}")
    qkv = matmul(x.reshape(B * S, E), w_qkv.t())
    q, k, v = qkv.view(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    out = x.new_empty(B, S, E)
    if out.numel() > 0:
        attend(q, k, v, out.view(B, S, heads, D).transpose(1, 2), causal, D**-0.5)
    return matmul(out.view(B * S, E), w_out.t()).view(B, S, E)
