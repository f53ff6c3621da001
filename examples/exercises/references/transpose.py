"""out = x^T"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=1,N=1", "M=45,N=70", "M=64,N=96"]
dtypes = ["float32"]
tolerance = 0.0


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[n, m] = x[m, n]"""
    return x.T.contiguous()
