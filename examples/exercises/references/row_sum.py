"""The sum of each row of x"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=5,N=1000", "M=3,N=7", "M=1,N=1"]
dtypes = ["float32"]
tolerance = (1e-6, 1e-4)


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[m] = sum over n of x[m, n]"""
    return x.sum(dim=1)
