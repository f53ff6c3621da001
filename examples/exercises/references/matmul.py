"""out = a b"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=64,K=48,N=64", "M=33,K=70,N=45"]
dtypes = ["float32"]
tolerance = (1e-6, 1e-4)


def reference(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"]) -> Tensor:
    """out[m, n] = sum over k of a[m, k] b[k, n]"""
    return a @ b
