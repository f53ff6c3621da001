"""A layer of multi-head attention in CUDA on Hopper's tensor cores: products by matmul/wgmma.py, attention by
attention/wgmma.cu."""

from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_multi_head_attention
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import HEAD_DIMS, scales
from cuda_ref.attention._plan import launch_planned
from cuda_ref.matmul import wgmma as product

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
    No data is copied between the three kernels: TMA reads q, k and v from the first product's output, and
    attention writes heads side by side, as the second product reads them. An operand that TMA cannot read is copied
    first. The output is contiguous. Causal: position i sees positions up to i.
    Dtypes: float16, bfloat16; sums in float32. The first product and attention's result are rounded.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32 and for D other than 64, 128 and 256; build.CudaError if a launch fails.
    Source: see matmul/wgmma.cu and attention/wgmma.cu.
    """
    return layer(product, x, w_qkv, w_out, heads, causal)


def config(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False) -> str:
    """The steps that `multi_head_attention` runs."""
    return steps(product, x, w_qkv, w_out)


def layer(product: ModuleType, x: Tensor, w_qkv: Tensor, w_out: Tensor, heads: int, causal: bool) -> Tensor:
    """The layer with both products by a module's `matmul`."""
    check_multi_head_attention(x, w_qkv, w_out, heads)
    (B, S, E), D = x.shape, x.shape[2] // heads
    if x.dtype == torch.float32:
        raise NotImplementedError("multi_head_attention: written for float16 and bfloat16; got torch.float32")
    if D not in HEAD_DIMS:
        raise NotImplementedError(f"multi_head_attention: E / heads must be 64, 128 or 256; got {D}")
    qkv = product.matmul(x.reshape(B * S, E), w_qkv.t())
    q, k, v = qkv.view(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    out = x.new_empty(B, S, E)
    if out.numel() > 0:
        o = out.view(B, S, heads, D).transpose(1, 2)
        launch_planned(q, k, v, o, causal, scales(D, None)[1])
    return product.matmul(out.view(B * S, E), w_out.t()).view(B, S, E)


def steps(product: ModuleType, x: Tensor, w_qkv: Tensor, w_out: Tensor) -> str:
    """Describes the steps of `layer`."""
    if x.numel() == 0:
        return ""
    rows = x.reshape(-1, x.shape[2])
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    return f"{product.config(rows, w_qkv.t())}; attention_wgmma; {product.config(out, w_out.t())}"
