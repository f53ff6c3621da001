"""A layer of multi-head attention in Triton: each step runs the `auto` of its operation."""

from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.contract import check_multi_head_attention
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import kept
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention import auto as attention_auto
from triton_kernels.matmul import auto as matmul_auto

DETERMINISTIC = True


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
    No data is copied between the three kernels: attention reads q, k and v from the output of the first product, as
    views with a stride of 3 E from one position to the next, and writes heads side by side, as the second product reads
    them. An x whose rows (b, s) are not equally far apart is copied first. The output is contiguous.
    Causal: position i sees positions up to i.
    Dtypes: float32 (ieee), float16, bfloat16; sums in float32. The first product and attention's result are rounded.
    Tail, NaN and errors: those of `matmul` and `attention`; ValueError if heads does not divide E.
    Source: Vaswani et al., "Attention Is All You Need", 2017.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    (B, S, E), D = x.shape, x.shape[2] // heads
    check_head(D, HEAD_DIMS, None)
    qkv = matmul_auto.matmul(x.reshape(B * S, E), w_qkv.t())
    q, k, v = qkv.view(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    out = empty_output((B, S, E), x.dtype, x.device)
    attention_auto.attend(q, k, v, out.view(B, S, heads, D).transpose(1, 2), causal, None)
    return matmul_auto.matmul(finished_output(out, x.dtype).view(B * S, E), w_out.t()).view(B, S, E)


def config(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False) -> str:
    """The kernels that `multi_head_attention` runs, step by step; empty if there is nothing to compute."""
    (B, S, E), D = x.shape, x.shape[2] // heads
    if x.numel() == 0:
        return ""
    rows = x.reshape(B * S, E)
    q, k, v = x.new_empty(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)
    attention = attention_auto.choose(q, k, v, causal=causal, contiguous=heads == 1 or S == 1)
    steps = (
        matmul_auto.config(rows, w_qkv.t()),
        attention.config(q, k, v, causal=causal),
        matmul_auto.config(rows, w_out.t()),
    )
    return "; ".join(steps)
