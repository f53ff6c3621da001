"""A layer of multi-head attention by PyTorch: linear, scaled_dot_product_attention (cuDNN's on a GPU), linear."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention

from torch_impls._runtime.contract import check_multi_head_attention
from torch_impls.attention._sdpa import sums_in_float32

VENDOR = "PyTorch (cuBLAS and cuDNN on a GPU)"
DTYPES_BEYOND = ("float64",)


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
    Causal: position i sees positions up to i. float32 with float32 products, float16 or bfloat16 with sums in float32;
    the first product and attention's result are rounded. In 16 bits on a GPU attention is by cuDNN, PyTorch's fastest
    kernel, if it accepts the sizes. Settings of the process are changed for the call, and restored.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads, float64=True)
    with sums_in_float32(x):
        return layer(x, w_qkv, w_out, heads=heads, causal=causal)


def layer(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool) -> Tensor:
    """Computes the layer in the precision to which PyTorch is set."""
    B, S, E = x.shape
    q, k, v = F.linear(x, w_qkv).view(B, S, 3, heads, E // heads).permute(2, 0, 3, 1, 4)
    if (
        x.is_cuda
        and x.dtype != torch.float32
        and can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, causal, False))
    ):
        o = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, causal, False)[0]
    else:
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F.linear(o.transpose(1, 2).reshape(B, S, E), w_out)
