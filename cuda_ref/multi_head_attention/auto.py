"""A layer of multi-head attention in CUDA: wgmma.py, with both products by matmul/auto.py.

Attention is attention/wgmma.cu, which writes heads side by side. attention/auto.py would need a copy of its result.
"""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.matmul import auto as product
from cuda_ref.multi_head_attention.wgmma import layer, steps

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

    Shapes, strides, dtypes, devices and errors: those of wgmma.py. `config` names the kernels that run.
    """
    return layer(product, x, w_qkv, w_out, heads, causal)


def config(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False) -> str:
    """The steps that `multi_head_attention` runs."""
    return steps(product, x, w_qkv, w_out)
