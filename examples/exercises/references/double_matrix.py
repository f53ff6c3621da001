"""out = 2 x"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=64,N=64"]
dtypes = ["float32"]
tolerance = 0.0


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[m, n] = 2 x[m, n]"""
    return 2 * x
