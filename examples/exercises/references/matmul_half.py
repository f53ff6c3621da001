"""out = a b; a and b are float16, out is float32"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=16,K=16,N=16", "M=32,K=64,N=48"]
dtypes = ["float16"]
tolerance = (1e-6, 1e-4)


def reference(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"]) -> Tensor:
    """out[m, n] = sum over k of a[m, k] b[k, n], in float32"""
    return a.float() @ b.float()
