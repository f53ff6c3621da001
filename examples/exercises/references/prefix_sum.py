"""The sums of the beginnings of each row of x"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=3,N=1000", "M=2,N=33"]
dtypes = ["float32"]
tolerance = (1e-6, 1e-4)


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[m, n] = x[m, 0] + ... + x[m, n]"""
    return x.cumsum(dim=1)
