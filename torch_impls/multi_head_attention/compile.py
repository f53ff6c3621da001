"""A layer of multi-head attention by torch.compile: Inductor calls cuBLAS, or its own Triton kernels, and cuDNN."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_multi_head_attention
from torch_impls.attention._sdpa import sums_in_float32

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(x: Tensor, w_qkv: Tensor, w_out: Tensor, heads: int, causal: bool) -> Tensor:
    B, S, E = x.shape
    q, k, v = F.linear(x, w_qkv).view(B, S, 3, heads, E // heads).permute(2, 0, 3, 1, 4)
    o = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, causal, False)[0]
    return F.linear(o.transpose(1, 2).reshape(B, S, E), w_out)


_layer = compiled("multi_head_attention", _plain)


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
    Causal: position i sees positions up to i. float16 and bfloat16 with sums in float32; the first product and
    attention's result are rounded.

    Raises ValueError for other shapes and dtypes; NotImplementedError for float32, for strides and for small inputs.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    if x.dtype == torch.float32:
        raise NotImplementedError("multi_head_attention: compiled for float16 and bfloat16, cuDNN's types; got float32")
    with sums_in_float32(x):
        return _layer(x, w_qkv, w_out, heads=heads, causal=causal)
