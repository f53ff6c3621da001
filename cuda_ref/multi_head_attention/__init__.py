"""A layer of multi-head attention in CUDA: the plain product, the plain attention, and the product again."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_multi_head_attention
from cuda_ref._runtime.kept import kept
from cuda_ref.attention import attend
from cuda_ref.matmul import matmul

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
    No data is copied between the three kernels: attention.cu reads q, k and v from the first product's output, as
    views with a stride of 3 E from one position to the next, and writes heads side by side, as the second product reads
    them. An x whose rows (b, s) are not equally far apart is copied first. The output is contiguous.
    Causal: position i sees positions up to i.
    Dtypes: float32, float16, bfloat16; products and sums in float32. The first product and attention's result are
    rounded.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for D
    above 256; build.CudaError if a launch fails.
    Source: see matmul/matmul.cu and attention/attention.cu.
    """
    check_multi_head_attention(x, w_qkv, w_out, heads)
    (B, S, E), D = x.shape, x.shape[2] // heads
    if D > 256:
        raise NotImplementedError(f"multi_head_attention: E / heads must be at most 256; got {D}")
    qkv = matmul(x.reshape(B * S, E), w_qkv.t())
    q, k, v = qkv.view(B, S, 3, heads, D).permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    out = x.new_empty(B, S, E)
    if out.numel() > 0:
        attend(q, k, v, out.view(B, S, heads, D).transpose(1, 2), causal, D**-0.5)
    return matmul(out.view(B * S, E), w_out.t()).view(B, S, E)
