"""Each row of x, backwards"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=3,N=256", "M=2,N=1000"]
dtypes = ["float32"]
tolerance = 0.0


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[m, n] = x[m, N - 1 - n]"""
    return x.flip(1)
