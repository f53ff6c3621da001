"""out = a + b"""

from jaxtyping import Float
from torch import Tensor

shapes = ["N=1000", "N=1", "N=3001"]
dtypes = ["float32"]
tolerance = 1e-7


def reference(a: Float[Tensor, "N"], b: Float[Tensor, "N"]) -> Tensor:
    """out[i] = a[i] + b[i]"""
    return a + b
